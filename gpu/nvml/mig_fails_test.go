//go:build cgo

package nvml

import (
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/sim"
)

// TestMIGFails: whichever call fails, the error is told, and nothing goes on as if the call had worked.
func TestMIGFails(t *testing.T) {
	l := onNode(t, func() *sim.Node { return sim.New(t, "550.163.01", "A100-40") })
	if l == nil {
		return
	}
	m, u := onlyGPU(t, l)
	ctx := t.Context()
	if err := errors.Join(m.SetMode(ctx, u, true), m.Create(ctx, u, three, 4)); err != nil {
		t.Fatal(err)
	}
	fails := func(what string, do func() error, calls ...string) {
		t.Helper()
		for _, name := range calls {
			simgpu(t, "fail", "any", name, "999", "1")
			if err := do(); err == nil {
				t.Errorf("%s although %s fails", what, name)
			}
			simgpu(t, "release", "any")
		}
	}
	read := func() error { _, err := m.State(ctx, u); return err }
	fails("read", read, "nvmlDeviceGetHandleByUUID*", "nvmlDeviceGetMigMode*", "nvmlDeviceGetIndex*", "nvmlDeviceGetPciInfo*",
		"nvmlDeviceGetName*", "nvmlDeviceGetCudaComputeCapability*", "nvmlDeviceGetMemoryInfo*",
		"nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements*", "nvmlDeviceGetGpuInstances*",
		"nvmlGpuInstanceGetInfo*", "nvmlGpuInstanceGetComputeInstances*", "nvmlComputeInstanceGetInfo*",
		"nvmlDeviceGetMaxMigDeviceCount*", "nvmlDeviceGetMigDeviceHandleByIndex*", "nvmlDeviceGetGpuInstanceId*",
		"nvmlDeviceGetComputeInstanceId*", "nvmlDeviceGetUUID*", "nvmlDeviceGetComputeRunningProcesses*",
		"nvmlDeviceGetGraphicsRunningProcesses*", "nvmlDeviceGetMPSComputeRunningProcesses*")
	simgpu(t, "fail", "any", "nvmlDeviceGetMinorNumber*", "999", "1")
	if s := state(t, m, u); s.Minor != -1 {
		t.Errorf("a minor number that is not told is %d", s.Minor)
	}
	fails("set", func() error { return m.SetMode(ctx, u, true) }, "nvmlDeviceSetMigMode*", "nvmlDeviceGetMigMode*")

	only := func(want gpu.Layout) {
		t.Helper()
		if s := state(t, m, u); !s.Layout().Equal(want) {
			t.Errorf("%+v, want %v", s.Instances, want)
		}
	}
	other := gpu.Place{Profile: three.Profile, Start: 4}
	fails("created", func() error { return m.Create(ctx, u, other, 4) }, "nvmlDeviceGetGpuInstances*", "nvmlGpuInstanceGetInfo*",
		"nvmlDeviceCreateGpuInstanceWithPlacement*", "nvmlGpuInstanceCreateComputeInstance*", "nvmlGpuInstanceGetComputeInstances*")
	only(gpu.NewLayout(three))
	fails("destroyed", func() error { return m.Destroy(ctx, u, three) }, "nvmlDeviceGetGpuInstances*", "nvmlGpuInstanceGetInfo*",
		"nvmlGpuInstanceGetComputeInstances*", "nvmlComputeInstanceDestroy*", "nvmlGpuInstanceDestroy*")
	only(gpu.NewLayout(three))
	if err := m.Destroy(ctx, u, three); err != nil {
		t.Error(err)
	}
	only(nil)
	wantSteps(t, m, u)
	if err := m.Create(ctx, u, gpu.Place{Profile: 99}, 4); err == nil {
		t.Error("an instance of a profile that is none")
	}
}

// wantSteps: each call that reads MIG is named before it is made, since one that hangs is told by its name.
func wantSteps(t *testing.T, m MIG, u gpu.UUID) {
	t.Helper()
	if err := m.Create(t.Context(), u, three, 4); err != nil {
		t.Fatal(err)
	}
	steps := map[string]bool{}
	d, _ := m.l.lib.DeviceGetHandleByUUID(u.String())
	c := migCaller{lib: m.l.lib, device: d, has: m.has, cores: true, uuid: u, step: func(s string) { steps[strings.Fields(s)[0]] = true }}
	if _, err := c.state(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"DeviceGetMigMode", "DeviceGetIndex", "DeviceGetPciInfo", "DeviceGetMinorNumber", "DeviceGetName",
		"DeviceGetCudaComputeCapability", "DeviceGetMemoryInfo", "DeviceGetNumGpuCores", "DeviceGetGpuInstanceProfileInfo",
		"DeviceGetGpuInstanceProfileInfoV", "DeviceGetGpuInstancePossiblePlacements", "SystemGetDriverVersion",
		"DeviceGetGpuInstances", "GpuInstanceGetInfo", "GpuInstanceGetComputeInstanceProfileInfo", "GpuInstanceGetComputeInstances",
		"ComputeInstanceGetInfo", "DeviceGetMaxMigDeviceCount", "DeviceGetMigDeviceHandleByIndex", "DeviceGetGpuInstanceId",
		"DeviceGetComputeInstanceId", "DeviceGetUUID", "DeviceGetComputeRunningProcesses", "DeviceGetGraphicsRunningProcesses"} {
		if !steps["nvml"+name] {
			t.Errorf("nvml%s is no step", name)
		}
	}
}

// TestDestroyIsNotBelieved: an instance that is still there after a success is an error.
func TestDestroyIsNotBelieved(t *testing.T) {
	gi := &mock.GpuInstance{
		GetInfoFunc: func() (nvml.GpuInstanceInfo, nvml.Return) { return nvml.GpuInstanceInfo{}, nvml.SUCCESS },
		GetComputeInstanceProfileInfoFunc: func(int, int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
		},
		DestroyFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	c := migCaller{step: func(string) {}, device: &mock.Device{
		GetGpuInstancesFunc: func(*nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
			return []nvml.GpuInstance{gi}, nvml.SUCCESS
		},
	}}
	if err := c.destroy(gpu.Place{}); err == nil || !strings.Contains(err.Error(), "still there") {
		t.Error(err)
	}
}

// TestSetModeIsNotBelieved: a success counts if the mode is in force; one that a reset brings is told apart from one
// that nothing brings.
func TestSetModeIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		activation       nvml.Return
		current, pending int
		want             string
		reset            bool
	}{
		"in force":         {nvml.SUCCESS, 1, 1, "", false},
		"after a reset":    {nvml.SUCCESS, 0, 1, "mode 0 is in force", true},
		"not even pending": {nvml.SUCCESS, 0, 0, "mode 0 is pending, not 1", false},
		"until a reset":    {nvml.SUCCESS, 1, 0, "mode 0 is pending, not 1", false},
		"not activated":    {nvml.ERROR_IN_USE, 1, 1, "activation: ", false},
	} {
		m := migCaller{step: func(string) {}, device: &mock.Device{
			SetMigModeFunc: func(int) (nvml.Return, nvml.Return) { return c.activation, nvml.SUCCESS },
			GetMigModeFunc: func() (int, int, nvml.Return) { return c.current, c.pending, nvml.SUCCESS },
		}}
		err := m.setMode(nvml.DEVICE_MIG_ENABLE)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if errors.Is(err, gpu.ErrResetRequired) != c.reset {
			t.Errorf("%s: a reset would help: %v", name, err)
		}
	}
}

// TestDerivedName: the names of an A100's profiles. Without the GPU's memory a profile has all of it.
func TestDerivedName(t *testing.T) {
	for want, c := range map[string]struct {
		kind, slices  int
		memory, whole gpu.MiB
	}{
		"1g.5gb":    {nvml.GPU_INSTANCE_PROFILE_1_SLICE, 1, 4864, 40960},
		"1g.5gb+me": {nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 1, 4864, 40960},
		"2g.10gb":   {nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2, 9856, 40960},
		"3g.20gb":   {nvml.GPU_INSTANCE_PROFILE_3_SLICE, 3, 19968, 40960},
		"7g.40gb":   {nvml.GPU_INSTANCE_PROFILE_7_SLICE, 7, 40192, 40960},
		"7g.39gb":   {nvml.GPU_INSTANCE_PROFILE_7_SLICE, 7, 39936, 0},
		"2g.80gb":   {nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2, 81920, 81920},
	} {
		if got := derivedName(c.kind, c.slices, c.memory, c.whole); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

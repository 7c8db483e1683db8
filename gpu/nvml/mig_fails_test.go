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
	if err := m.Create(ctx, u, gpu.Place{Profile: 99}, 4); err == nil {
		t.Error("an instance of a profile that is none")
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

// TestDerivedName: without the GPU's memory a profile has all of it.
func TestDerivedName(t *testing.T) {
	if got := derivedName(nvml.GPU_INSTANCE_PROFILE_7_SLICE, 7, 40448, 0); got != "7g.40gb" {
		t.Error(got)
	}
}

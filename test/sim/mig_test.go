package sim

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// must is an error unless a call answered what it has to.
func must(call string, got, want nvml.Return) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s: %w, want NVML's %d", call, got, int(want))
}

func info(id uint32) *nvml.GpuInstanceProfileInfo { return &nvml.GpuInstanceProfileInfo{Id: id} }

func at(start, size uint32) *nvml.GpuInstancePlacement {
	return &nvml.GpuInstancePlacement{Start: start, Size: size}
}

// TestManageMIG goes through the life of instances on an A100 with every
// answer that a careless caller meets.
func TestManageMIG(t *testing.T) {
	needRoot(t)
	New(t, "550.163.01", "A100-40").do(t, "manage")
}

func manageMIG(lib nvml.Interface, _ []string) error {
	off, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return ret
	}
	max0, _ := off.GetMaxMigDeviceCount()
	_, early := off.CreateGpuInstance(info(9))
	_, none := off.GetMigDeviceHandleByIndex(0)
	err := errors.Join(must("create with MIG off", early, nvml.ERROR_NOT_SUPPORTED), must("MIG device with MIG off", none, nvml.ERROR_NOT_SUPPORTED))
	if max0 != 0 {
		err = errors.Join(err, fmt.Errorf("%d MIG devices at most with MIG off: HTCondor would skip the GPU", max0))
	}
	d, on := oneGPU(lib)
	if err = errors.Join(err, on); err != nil {
		return err
	}
	return errors.Join(refusals(d), lifeOfInstances(lib, d), devicesOfInstances(d))
}

// refusals: what cannot be created. 3g is id 9 and enum 2.
func refusals(d nvml.Device) error {
	_, byEnum := d.CreateGpuInstance(info(2))
	_, place := d.CreateGpuInstanceWithPlacement(info(9), at(2, 4))
	_, size := d.CreateGpuInstanceWithPlacement(info(9), at(0, 3))
	low, ret := d.CreateGpuInstanceWithPlacement(info(9), at(0, 4))
	_, four := d.CreateGpuInstanceWithPlacement(info(5), at(0, 4))
	media, retMedia := d.CreateGpuInstanceWithPlacement(info(20), at(4, 1))
	_, secondMedia := d.CreateGpuInstanceWithPlacement(info(20), at(5, 1))
	free, retFree := d.GetGpuInstanceRemainingCapacity(info(19))
	err := errors.Join(
		must("create by enum", byEnum, nvml.ERROR_INVALID_ARGUMENT),
		must("3g at 2", place, nvml.ERROR_INVALID_ARGUMENT), must("3g of 3 units", size, nvml.ERROR_INVALID_ARGUMENT),
		must("3g at 0", ret, nvml.SUCCESS), must("4g over 3g", four, nvml.ERROR_INSUFFICIENT_RESOURCES),
		must("1g+me", retMedia, nvml.SUCCESS), must("a second 1g+me", secondMedia, nvml.ERROR_INSUFFICIENT_RESOURCES),
		must("capacity", retFree, nvml.SUCCESS))
	if free != 2 { // 5 and 6; unit 7 belongs to no 1g
		err = errors.Join(err, fmt.Errorf("%d more 1g beside 3g@0 and 1g+me@4, want 2", free))
	}
	return errors.Join(err, must("destroy 3g", low.Destroy(), nvml.SUCCESS), must("destroy 1g+me", media.Destroy(), nvml.SUCCESS),
		must("destroy it again", media.Destroy(), nvml.ERROR_INVALID_ARGUMENT))
}

// lifeOfInstances: a compute instance first, a GPU instance last; the same place has the same UUID again.
func lifeOfInstances(lib nvml.Interface, d nvml.Device) error {
	var uuids [2]string
	var err error
	for i := range uuids {
		gi, ret := d.CreateGpuInstanceWithPlacement(info(9), at(4, 4))
		_, invisible := d.GetMigDeviceHandleByIndex(0)
		ci, retCI := gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE})
		_, full := gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE})
		mig, retMIG := d.GetMigDeviceHandleByIndex(0)
		err = errors.Join(err, must("create 3g", ret, nvml.SUCCESS), must("a GPU instance alone", invisible, nvml.ERROR_NOT_FOUND),
			must("create 2c", retCI, nvml.SUCCESS), must("3c beside 2c", full, nvml.ERROR_INSUFFICIENT_RESOURCES),
			must("MIG device 0", retMIG, nvml.SUCCESS))
		if err != nil {
			return err
		}
		uuids[i], ret = mig.GetUUID()
		again, retAgain := lib.DeviceGetHandleByUUID(uuids[i])
		name, retName := mig.GetName()
		a, retA := mig.GetAttributes()
		err = errors.Join(must("UUID", ret, nvml.SUCCESS), must("by UUID", retAgain, nvml.SUCCESS), must("name", retName, nvml.SUCCESS),
			must("attributes", retA, nvml.SUCCESS), must("destroy 3g under 2c", gi.Destroy(), nvml.ERROR_IN_USE),
			must("destroy 2c", ci.Destroy(), nvml.SUCCESS))
		if again != mig || name != "NVIDIA A100-SXM4-40GB MIG 2c.3g.20gb" || a.MultiprocessorCount != 28 || a.MemorySizeMB != 19968 || a.ComputeInstanceSliceCount != 2 {
			err = errors.Join(err, fmt.Errorf("the MIG device is %q, %+v", name, a))
		}
		_, dead := mig.GetUUID()
		err = errors.Join(err, must("a dead MIG device", dead, nvml.ERROR_INVALID_ARGUMENT), must("destroy 3g", gi.Destroy(), nvml.SUCCESS))
	}
	if uuids[0] != uuids[1] || !strings.HasPrefix(uuids[0], "MIG-") {
		err = errors.Join(err, fmt.Errorf("UUIDs of one place: %v", uuids))
	}
	return err
}

// devicesOfInstances: indices are dense and move when an instance goes.
func devicesOfInstances(d nvml.Device) error {
	var gis [3]nvml.GpuInstance
	var cis [3]nvml.ComputeInstance
	var err error
	for i := range gis {
		var ret, retCI nvml.Return
		gis[i], ret = d.CreateGpuInstanceWithPlacement(info(19), at(uint32(i), 1))
		cis[i], retCI = gis[i].CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE})
		err = errors.Join(err, ok("create 1g", ret), ok("create 1c", retCI))
	}
	if err != nil {
		return err
	}
	second, _ := d.GetMigDeviceHandleByIndex(1)
	err = errors.Join(ok("destroy 1c", cis[0].Destroy()), ok("destroy 1g", gis[0].Destroy()))
	first, _ := d.GetMigDeviceHandleByIndex(0)
	parent, ret := first.GetDeviceHandleFromMigDeviceHandle()
	_, hole := d.GetMigDeviceHandleByIndex(2)
	_, beyond := d.GetMigDeviceHandleByIndex(7)
	err = errors.Join(err, ok("parent", ret), must("MIG device 2 of 2", hole, nvml.ERROR_NOT_FOUND), must("MIG device 7", beyond, nvml.ERROR_INVALID_ARGUMENT))
	if first != second || parent != d {
		err = errors.Join(err, errors.New("the index did not move with the instance, or its parent is another GPU"))
	}
	return errors.Join(err, unprivileged(d))
}

// unprivileged: what a user may not do. The library is loaded already: the
// cache may be root's alone.
func unprivileged(d nvml.Device) error {
	if err := syscall.Seteuid(65534); err != nil {
		return err
	}
	_, mode := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	_, create := d.CreateGpuInstance(info(19))
	_, places := d.GetGpuInstancePossiblePlacements(info(19))
	_, free := d.GetGpuInstanceRemainingCapacity(info(19))
	_, byID := d.GetGpuInstanceById(1)
	_, profile := d.GetGpuInstanceProfileInfo(0)
	mig, handle := d.GetMigDeviceHandleByIndex(0)
	_, uuid := mig.GetUUID()
	const no, yes = nvml.ERROR_NO_PERMISSION, nvml.SUCCESS
	return errors.Join(must("a user sets MIG mode", mode, no), must("a user sets compute mode", d.SetComputeMode(nvml.COMPUTEMODE_PROHIBITED), no),
		must("a user creates", create, no), must("a user asks placements", places, no), must("a user asks capacity", free, no),
		must("a user asks for a GPU instance", byID, no), must("a user asks a profile", profile, yes),
		must("a user finds MIG devices", handle, yes), must("a user reads a UUID", uuid, yes), syscall.Seteuid(0))
}

// TestMIGMode: Ampere resets the GPU, which may be blocked; Hopper does not; a
// busy GPU keeps its mode; a model without MIG has none.
func TestMIGMode(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		model         string
		blocked, busy bool
		want          string
	}{
		{"A100-40", false, false, "SUCCESS activation SUCCESS current 1 pending 1"},
		{"A100-40", true, false, "SUCCESS activation RESET_REQUIRED current 0 pending 1"},
		{"A100-40", false, true, "SUCCESS activation IN_USE current 0 pending 1"},
		{"H100-80", true, false, "SUCCESS activation SUCCESS current 1 pending 1"},
		{"H100-80", false, true, "SUCCESS activation IN_USE current 0 pending 0"},
		{"V100S", false, false, "NOT_SUPPORTED"},
	} {
		t.Run(fmt.Sprintf("%s blocked=%t busy=%t", c.model, c.blocked, c.busy), func(t *testing.T) {
			n := New(t, "550.163.01", c.model)
			if c.blocked {
				n.Poke(t, "set", "0", "reset_blocked", "1")
			}
			if c.busy {
				n.hold(t, "0", "-", "-")
			}
			if got := strings.TrimSpace(n.do(t, "mode")); got != c.want {
				t.Errorf("enable MIG: %q, want %q", got, c.want)
			}
		})
	}
}

func changeMode(lib nvml.Interface, _ []string) error {
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return ret
	}
	names := map[nvml.Return]string{nvml.SUCCESS: "SUCCESS", nvml.ERROR_IN_USE: "IN_USE", nvml.ERROR_RESET_REQUIRED: "RESET_REQUIRED", nvml.ERROR_NOT_SUPPORTED: "NOT_SUPPORTED"}
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	if ret != nvml.SUCCESS {
		return say(names[ret])
	}
	current, pending, get := d.GetMigMode()
	return errors.Join(ok("nvmlDeviceGetMigMode", get), say(names[ret], "activation", names[activation], "current", current, "pending", pending))
}

// hold lets a process hold a device until the test ends, or until the function
// that it returns is called.
func (n *Node) hold(tb testing.TB, gpu, gi, ci string) (release func()) {
	tb.Helper()
	// Not with tb's context: that ends before the clean-up.
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), filepath.Join(n.Dir, "bin/simpoke"), "hold", gpu, gi, ci, "1024", "50")
	cmd.Env = n.Env()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	ready(tb, cmd)
	release = sync.OnceFunc(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(release)
	return release
}

// ready starts a program and waits until it says that it is ready.
func ready(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	line := make([]byte, 6)
	if n, err := out.Read(line); string(line[:n]) != "ready\n" {
		tb.Fatalf("%s did not start: %q, %v", cmd.Path, line[:n], err)
	}
}

//go:build cgo

package nvml

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gpuslot/gpuslot/gpu"
)

// fakeLibrary behaves like NVML on a node whose GPUs are in given states; any
// call that it does not have panics, as a missing symbol ends the process.
type fakeLibrary struct {
	nvml.Interface
	devices []fakeDevice
	count   nvml.Return
}

func (l fakeLibrary) SystemGetDriverVersion() (string, nvml.Return) {
	return "550.163.01", nvml.SUCCESS
}
func (l fakeLibrary) SystemGetCudaDriverVersion() (int, nvml.Return) { return 12040, nvml.SUCCESS }
func (l fakeLibrary) DeviceGetCount() (int, nvml.Return)             { return len(l.devices), l.count }
func (l fakeLibrary) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	return l.devices[i], l.devices[i].handle
}

type fakeDevice struct {
	nvml.Device
	handle, memory, mode, mig nvml.Return
	v2                        nvml.Return
	uuid, name                string
	bus                       byte
	total, reserved           uint64
}

func (d fakeDevice) GetUUID() (string, nvml.Return) { return d.uuid, nvml.SUCCESS }
func (d fakeDevice) GetName() (string, nvml.Return) { return d.name, nvml.SUCCESS }
func (d fakeDevice) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	p := nvml.PciInfo{}
	for i, c := range []byte("00000000:" + string("0123456789ABCDEF"[d.bus>>4]) + string("0123456789ABCDEF"[d.bus&15]) + ":00.0") {
		p.BusId[i] = int8(c)
	}
	return p, nvml.SUCCESS
}
func (d fakeDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return nvml.Memory{Total: d.total}, d.memory
}
func (d fakeDevice) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	return nvml.Memory_v2{Total: d.total, Reserved: d.reserved, Free: d.total - d.reserved}, d.v2
}
func (d fakeDevice) GetCudaComputeCapability() (int, int, nvml.Return) { return 7, 0, nvml.SUCCESS }
func (d fakeDevice) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	return nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, d.mode
}
func (d fakeDevice) GetMigMode() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 0, d.mig }
func (d fakeDevice) GetNumGpuCores() (int, nvml.Return)  { return 5120, nvml.SUCCESS }

const (
	uuidA = "GPU-0000000a-0000-4000-8000-000000000000"
	uuidB = "GPU-0000000b-0000-4000-8000-000000000000"
	name  = "Tesla V100S-PCIE-32GB"
)

func v100s(uuid string, bus byte) fakeDevice {
	return fakeDevice{uuid: uuid, name: name, bus: bus, total: 34089730048, mig: nvml.ERROR_NOT_SUPPORTED}
}

var all = symbols{migMode: true, memoryV2: true, cores: true, cudaVersion: true}

func TestReadNodeGoesOnWithoutTheLostOnes(t *testing.T) {
	lost, broken, short := v100s(uuidB, 0x1b), v100s(uuidB, 0x1c), v100s("GPU-0000000b", 0x1d)
	lost.handle = nvml.ERROR_GPU_IS_LOST
	broken.memory = nvml.ERROR_UNKNOWN
	mig := v100s(uuidB, 0x3b)
	mig.mig = nvml.SUCCESS
	mig.mode = nvml.ERROR_NOT_SUPPORTED
	mig.v2 = nvml.ERROR_NOT_SUPPORTED
	some := v100s(uuidA, 0x1a)
	some.reserved = 257<<20 + 1
	reserved := gpu.MiB(258) // a part of a MiB is not offered
	empty := v100s("GPU-0000000c-0000-4000-8000-000000000000", 0x3c)
	empty.total = 0
	var steps []string
	inv, unreadable, err := readNode(fakeLibrary{devices: []fakeDevice{mig, lost, broken, short, some, empty}}, all, func(s string) { steps = append(steps, s) })
	if err != nil {
		t.Fatal(err)
	}
	want := gpu.Inventory{
		Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4",
		GPUs: []gpu.GPU{
			// 34089730048 bytes are 32510 MiB; 5120 cores at 64 each are 80 SMs.
			{UUID: uuidA, Index: 4, Name: name, PCI: "0000:1a:00.0", Memory: 32510, Reserved: &reserved, Capability: gpu.Volta, Multiprocessors: 80, ComputeMode: gpu.ComputeModeExclusiveProcess},
			{UUID: uuidB, Index: 0, Name: name, PCI: "0000:3b:00.0", Memory: 32510, Capability: gpu.Volta, Multiprocessors: 80, MIGCapable: true, MIGEnabled: true},
		},
	}
	if d := cmp.Diff(want, inv); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i, part := range []string{
		"index 1: nvmlDeviceGetHandleByIndex: the GPU has fallen off the bus (GPU_IS_LOST)",
		"index 2: nvmlDeviceGetMemoryInfo: ",
		`index 3: NVML reports: UUID "GPU-0000000b" is not of the form`,
		"index 5: it has no memory of its own",
	} {
		if len(unreadable) <= i || !strings.Contains(unreadable[i].Error(), part) {
			t.Errorf("unreadable[%d] of %q does not say %q", i, unreadable, part)
		}
	}
	if last := steps[len(steps)-1]; last != "nvmlDeviceGetMemoryInfo of the GPU with NVML index 5" {
		t.Errorf("the last step was %q", last)
	}
}

// The fake panics on calls it lacks: an old driver must not be asked for new ones.
func TestReadNodeAsksAnOldDriverOnlyWhatItHas(t *testing.T) {
	old := fakeDeviceV418{d: v100s(uuidA, 0x1a)}
	g, _, err := readGPU(oneDevice{device: old}, 0, symbols{}, func(string) {})
	if err != nil || g.MIGCapable || g.Multiprocessors != 0 || g.Memory != 32510 || g.Reserved != nil {
		t.Errorf("%+v, %v", g, err)
	}
}

type oneDevice struct {
	nvml.Interface
	device nvml.Device
}

func (l oneDevice) DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return) {
	return l.device, nvml.SUCCESS
}

// fakeDeviceV418 has what the library of driver 418 exports.
type fakeDeviceV418 struct {
	nvml.Device
	d fakeDevice
}

func (f fakeDeviceV418) GetUUID() (string, nvml.Return)            { return f.d.GetUUID() }
func (f fakeDeviceV418) GetName() (string, nvml.Return)            { return f.d.GetName() }
func (f fakeDeviceV418) GetPciInfo() (nvml.PciInfo, nvml.Return)   { return f.d.GetPciInfo() }
func (f fakeDeviceV418) GetMemoryInfo() (nvml.Memory, nvml.Return) { return f.d.GetMemoryInfo() }
func (f fakeDeviceV418) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	return f.d.GetComputeMode()
}
func (f fakeDeviceV418) GetCudaComputeCapability() (int, int, nvml.Return) {
	return f.d.GetCudaComputeCapability()
}

func TestReadNodeWithoutACount(t *testing.T) {
	_, _, err := readNode(fakeLibrary{count: nvml.ERROR_NO_PERMISSION}, symbols{}, func(string) {})
	if !errors.Is(err, ErrNoPermission) {
		t.Errorf("%v, want ErrNoPermission", err)
	}
}

// settable is a library with one GPU whose compute mode can be set, or not.
type settable struct {
	nvml.Interface
	ret nvml.Return
	set *[]nvml.ComputeMode
}

func (l settable) DeviceGetHandleByUUID(u string) (nvml.Device, nvml.Return) {
	if u != uuidA {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return settableDevice{l: l}, nvml.SUCCESS
}

func (l settable) Shutdown() nvml.Return { return nvml.SUCCESS }

type settableDevice struct {
	nvml.Device
	l settable
}

func (d settableDevice) SetComputeMode(m nvml.ComputeMode) nvml.Return {
	*d.l.set = append(*d.l.set, m)
	return d.l.ret
}

func TestSetComputeMode(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, c := range []struct {
		uuid gpu.UUID
		mode gpu.ComputeMode
		ret  nvml.Return
		is   error
		says string
		sets []nvml.ComputeMode
	}{
		{uuidA, gpu.ComputeModeExclusiveProcess, nvml.SUCCESS, nil, "", []nvml.ComputeMode{3}}, // the numbers of nvml.h
		{uuidA, gpu.ComputeModeDefault, nvml.SUCCESS, nil, "", []nvml.ComputeMode{0}},
		{uuidA, gpu.ComputeModeDefault, nvml.ERROR_NO_PERMISSION, ErrNoPermission, "it needs root", []nvml.ComputeMode{0}},
		{uuidA, gpu.ComputeModeDefault, nvml.ERROR_NOT_SUPPORTED, ErrNotSupported, "", []nvml.ComputeMode{0}},
		{uuidB, gpu.ComputeModeDefault, nvml.SUCCESS, nil, "no such GPU", nil},
		{uuidA, "exclusive-thread", nvml.SUCCESS, nil, "no compute mode", nil},
	} {
		var set []nvml.ComputeMode
		l := &Library{lib: settable{ret: c.ret, set: &set}, worker: newWorker()}
		err := l.SetComputeMode(t.Context(), c.uuid, c.mode)
		if wantErr := c.is != nil || c.says != ""; (err != nil) != wantErr || c.is != nil && !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s of %s: %v", c.mode, c.uuid, err)
		}
		if d := cmp.Diff(c.sets, set); d != "" {
			t.Errorf("%s of %s sets (-want +got):\n%s", c.mode, c.uuid, d)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestLookUp(t *testing.T) {
	old := lookUp(exports{"nvmlDeviceGetMigMode": true, "nvmlSystemGetCudaDriverVersion": true})
	if want := (symbols{migMode: true, cudaVersion: true}); !reflect.DeepEqual(old, want) {
		t.Errorf("%+v, want %+v", old, want)
	}
}

type exports map[string]bool

func (e exports) LookupSymbol(name string) error {
	if e[name] {
		return nil
	}
	return errors.New("undefined symbol: " + name)
}

func TestCUDAVersion(t *testing.T) {
	for v, want := range map[int]string{12040: "12.4", 13010: "13.1", 11080: "11.8", 12000: "12.0"} {
		if got := cudaVersion(v); got != want {
			t.Errorf("%d: %s, want %s", v, got, want)
		}
	}
}

func TestOpenErrorsSayWhatToDo(t *testing.T) {
	for ret, c := range map[nvml.Return]struct {
		is   error
		says string
	}{
		nvml.ERROR_LIBRARY_NOT_FOUND:       {ErrNoLibrary, "install the NVIDIA driver"},
		nvml.ERROR_DRIVER_NOT_LOADED:       {ErrNoDriver, "modprobe nvidia"},
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: {ErrMismatch, "reboot"},
		nvml.ERROR_NO_PERMISSION:           {ErrNoPermission, "/dev/nvidiactl"},
		nvml.ERROR_UNKNOWN:                 {nil, "return code 999"},
	} {
		err := openError(ret)
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d: %v", int(ret), err)
		}
	}
}

// TestOpenFails loads for real: any call after a failed Init would end this
// process. LD_LIBRARY_PATH may lead to a library without a driver.
func TestOpenFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Setenv("NVML_MPS_DEVICE_ENUMERATION", "1")
	for range 2 { // a second try, as for a driver that comes late
		l, err := Open()
		if err == nil {
			_ = l.Close(t.Context())
			t.Skip("this machine has NVML and a driver")
		}
		if !errors.Is(err, ErrNoLibrary) && !errors.Is(err, ErrNoDriver) {
			t.Fatalf("%v, want ErrNoLibrary or ErrNoDriver", err)
		}
		t.Log(err)
	}
	if v, set := os.LookupEnv("NVML_MPS_DEVICE_ENUMERATION"); set {
		t.Errorf("NVML_MPS_DEVICE_ENUMERATION is still %q", v)
	}
}

//go:build cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// deviceReader asks one GPU, call by call, until the first error that matters.
type deviceReader struct {
	device nvml.Device
	index  int
	step   func(string)
	err    error
}

// readGPU reads one GPU. Unread is why some of its MIG devices are left out.
func readGPU(lib nvml.Interface, index int, has symbols, step func(string)) (g gpu.GPU, unread, err error) {
	r := deviceReader{index: index, step: step}
	d := ask(&r, "nvmlDeviceGetHandleByIndex",
		func() (nvml.Device, nvml.Return) { return lib.DeviceGetHandleByIndex(index) })
	if r.err != nil {
		return gpu.GPU{}, nil, r.err
	}
	r.device = d
	g = gpu.GPU{Index: index}
	g.UUID = parse(&r, gpu.ParseUUID, ask(&r, "nvmlDeviceGetUUID", d.GetUUID))
	g.Name = ask(&r, "nvmlDeviceGetName", d.GetName)
	g.PCI = parse(&r, gpu.ParsePCIBusID, busID(ask(&r, "nvmlDeviceGetPciInfo", d.GetPciInfo)))
	g.Memory = r.total()
	g.Reserved = r.reserved(has.memoryV2)
	g.Capability = r.capability()
	g.ComputeMode = r.computeMode()
	if has.migMode {
		g.MIGCapable, g.MIGEnabled = r.migMode()
	}
	if g.MIGEnabled && has.migDevices {
		g.MIGDevices, unread = migDevices(&r, has.memoryV2)
	}
	g.Unusual = r.unusual(lib, has.unusual)
	if has.cores {
		g.Multiprocessors = multiprocessors(g.Capability, optional(&r, "nvmlDeviceGetNumGpuCores", d.GetNumGpuCores))
	}
	return g, unread, r.err
}

// ask makes one call, unless an earlier one of this GPU failed.
func ask[T any](r *deviceReader, name string, call func() (T, nvml.Return)) T {
	var none T
	if r.err != nil {
		return none
	}
	r.step(fmt.Sprintf("%s of the GPU with NVML index %d", name, r.index))
	v, ret := call()
	if ret != nvml.SUCCESS {
		r.err = fmt.Errorf("%s: %w", name, callError(ret))
		return none
	}
	return v
}

// optional is ask for what a GPU may lack; then the value is zero.
func optional[T any](r *deviceReader, name string, call func() (T, nvml.Return)) T {
	return ask(r, name, func() (T, nvml.Return) {
		v, ret := call()
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND {
			var none T
			return none, nvml.SUCCESS
		}
		return v, ret
	})
}

// reserved is what driver and firmware keep of the device's memory, rounded up; nil
// where it is not told. Drivers before 510 have no such call, and their total is
// without that part.
func (r *deviceReader) reserved(has bool) *gpu.MiB {
	if !has || r.err != nil {
		return nil
	}
	r.step(fmt.Sprintf("nvmlDeviceGetMemoryInfo_v2 of the GPU with NVML index %d", r.index))
	v2, ret := r.device.GetMemoryInfo_v2()
	if ret != nvml.SUCCESS || v2.Reserved >= v2.Total {
		return nil
	}
	mib := gpu.MiBFromBytes(v2.Reserved + gpu.BytesPerMiB - 1)
	return &mib
}

// parse reads one of NVML's strings, unless a call failed.
func parse[T any](r *deviceReader, read func(string) (T, error), s string) T {
	var none T
	if r.err != nil {
		return none
	}
	v, err := read(s)
	if err != nil {
		r.err = fmt.Errorf("NVML reports: %w", err)
	}
	return v
}

// busID is the address up to its NUL ("00000000:3B:00.0").
func busID(p nvml.PciInfo) string {
	var b []byte
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func (r *deviceReader) capability() gpu.ComputeCapability {
	return ask(r, "nvmlDeviceGetCudaComputeCapability", func() (gpu.ComputeCapability, nvml.Return) {
		major, minor, ret := r.device.GetCudaComputeCapability()
		return gpu.ComputeCapability{Major: major, Minor: minor}, ret
	})
}

// computeMode is empty if the GPU does not tell it.
func (r *deviceReader) computeMode() gpu.ComputeMode {
	return optional(r, "nvmlDeviceGetComputeMode", func() (gpu.ComputeMode, nvml.Return) {
		now, ret := r.device.GetComputeMode()
		if ret != nvml.SUCCESS {
			return "", ret
		}
		for mode, code := range computeModes {
			if code == now {
				return mode, ret
			}
		}
		return "", ret
	})
}

func (r *deviceReader) migMode() (capable, enabled bool) {
	mode := optional(r, "nvmlDeviceGetMigMode", func() (migMode, nvml.Return) {
		current, _, ret := r.device.GetMigMode()
		return migMode{capable: true, enabled: current == nvml.DEVICE_MIG_ENABLE}, ret
	})
	return mode.capable, mode.enabled
}

type migMode struct{ capable, enabled bool }

// coresPerSM is the number of FP32 cores of one multiprocessor (CUDA C++
// Programming Guide, "Arithmetic Instructions": results per clock cycle and SM).
// NVML tells the cores of a GPU, but the multiprocessors only of MIG devices.
var coresPerSM = map[gpu.ComputeCapability]int{
	{Major: 6, Minor: 0}: 64, {Major: 6, Minor: 1}: 128,
	{Major: 7, Minor: 0}: 64, {Major: 7, Minor: 5}: 64,
	{Major: 8, Minor: 0}: 64, {Major: 8, Minor: 6}: 128, {Major: 8, Minor: 9}: 128,
	{Major: 9, Minor: 0}: 128, {Major: 10, Minor: 0}: 128, {Major: 10, Minor: 3}: 128, {Major: 12, Minor: 0}: 128,
}

// multiprocessors is 0 where it cannot be told.
func multiprocessors(c gpu.ComputeCapability, cores int) int {
	per, known := coresPerSM[c]
	if !known || cores < 0 {
		return 0
	}
	return cores / per
}

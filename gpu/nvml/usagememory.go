//go:build cgo

package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// notAvailable is NVML_VALUE_NOT_AVAILABLE: all ones.
const notAvailable = ^uint64(0)

// memory is how the memory of r's device is used.
func (m *meter) memory(r *deviceReader) gpu.Measured[gpu.MemoryUse] {
	if m.has.memoryV2 {
		v2 := told(r, "nvmlDeviceGetMemoryInfo_v2", r.device.GetMemoryInfo_v2)
		if v2.Known {
			return memoryV2(v2.Value)
		}
	}
	v1 := told(r, "nvmlDeviceGetMemoryInfo", r.device.GetMemoryInfo)
	if !v1.Known || v1.Value.Total == 0 || v1.Value.Used > v1.Value.Total {
		return gpu.Measured[gpu.MemoryUse]{}
	}
	return gpu.Known(gpu.MemoryUse{Total: gpu.Bytes(v1.Value.Total), Free: gpu.Bytes(v1.Value.Free),
		Used: gpu.Bytes(v1.Value.Used)})
}

// memoryV2 computes what is used: nvml.h says both that "used" contains the
// reserve and that it does not.
func memoryV2(v nvml.Memory_v2) gpu.Measured[gpu.MemoryUse] {
	if v.Total == 0 || v.Free > v.Total || v.Reserved > v.Total-v.Free {
		return gpu.Measured[gpu.MemoryUse]{}
	}
	return gpu.Known(gpu.MemoryUse{
		Total: gpu.Bytes(v.Total), Free: gpu.Bytes(v.Free),
		Used: gpu.Bytes(v.Total - v.Free - v.Reserved), Reserved: gpu.Known(gpu.Bytes(v.Reserved)),
	})
}

// processes are those of the compute list, of the MPS list and of the graphics list. Clients
// of MPS stand in the first, the second or both, depending on driver and GPU. A process that
// uses OpenGL or Vulkan, and not CUDA, stands in the third only (nvml.h).
func (m *meter) processes(r *deviceReader) gpu.Measured[[]gpu.DeviceProcess] {
	if !m.has.processes {
		return gpu.Measured[[]gpu.DeviceProcess]{}
	}
	compute := told(r, "nvmlDeviceGetComputeRunningProcesses", r.device.GetComputeRunningProcesses)
	var clients gpu.Measured[[]nvml.ProcessInfo]
	if m.has.mps {
		clients = told(r, "nvmlDeviceGetMPSComputeRunningProcesses", r.device.GetMPSComputeRunningProcesses)
	}
	if !compute.Known && !clients.Known {
		return gpu.Measured[[]gpu.DeviceProcess]{}
	}
	var graphics gpu.Measured[[]nvml.ProcessInfo]
	if m.has.graphics {
		graphics = told(r, "nvmlDeviceGetGraphicsRunningProcesses", func() ([]nvml.ProcessInfo, nvml.Return) {
			list, ret := r.device.GetGraphicsRunningProcesses()
			if ret != nvml.SUCCESS {
				ret = nvml.ERROR_NOT_SUPPORTED // no answer here says that the GPU cannot be read
			}
			return list, ret
		})
	}
	return gpu.Known(union(compute.Value, clients.Value, graphics.Value))
}

// union lists every process once. Where several lists tell its memory the largest
// counts, not the sum: each means all of it.
func union(compute, clients, graphics []nvml.ProcessInfo) []gpu.DeviceProcess {
	out := make([]gpu.DeviceProcess, 0, len(compute)+len(clients)+len(graphics))
	add := func(list []nvml.ProcessInfo, as gpu.DeviceProcess) {
		for _, p := range list {
			if p.Pid == 0 { // a sentinel
				continue
			}
			d := as
			d.PID = int(p.Pid)
			if p.UsedGpuMemory != notAvailable {
				d.Memory = gpu.Known(gpu.Bytes(p.UsedGpuMemory))
			}
			out = append(out, d)
		}
	}
	add(compute, gpu.DeviceProcess{})
	add(clients, gpu.DeviceProcess{MPSClient: true})
	add(graphics, gpu.DeviceProcess{Graphics: true})
	slices.SortStableFunc(out, func(a, b gpu.DeviceProcess) int { return a.PID - b.PID })
	return mergeSame(out)
}

func mergeSame(sorted []gpu.DeviceProcess) []gpu.DeviceProcess {
	n := 0
	for _, p := range sorted {
		if n == 0 || sorted[n-1].PID != p.PID {
			sorted[n] = p
			n++
			continue
		}
		same := &sorted[n-1]
		same.MPSClient = same.MPSClient || p.MPSClient
		same.Graphics = same.Graphics && p.Graphics
		if p.Memory.Known && (!same.Memory.Known || p.Memory.Value > same.Memory.Value) {
			same.Memory = p.Memory
		}
	}
	return sorted[:n]
}

// hasClients says whether any of the processes is an MPS client.
func hasClients(list []gpu.DeviceProcess) bool {
	return slices.ContainsFunc(list, func(p gpu.DeviceProcess) bool { return p.MPSClient })
}

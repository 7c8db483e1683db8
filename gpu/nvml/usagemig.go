//go:build cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// instances reads the MIG devices of a GPU. Their handles die with them, so
// they are looked up each time.
func (m *meter) instances(r *deviceReader, g *gpuMeter) []gpu.InstanceReading {
	most := told(r, "nvmlDeviceGetMaxMigDeviceCount", r.device.GetMaxMigDeviceCount)
	var out []gpu.InstanceReading
	for i := range most.Value {
		d := told(r, "nvmlDeviceGetMigDeviceHandleByIndex",
			func() (nvml.Device, nvml.Return) { return r.device.GetMigDeviceHandleByIndex(i) })
		if !d.Known {
			continue // holes are usual
		}
		if inst, ok := m.instance(r, d.Value); ok {
			out = append(out, inst)
		}
	}
	m.instanceActivity(r, g, out)
	return out
}

// instance reads one MIG device. It may go away meanwhile: then it is left out
// and the GPU is well.
func (m *meter) instance(parent *deviceReader, d nvml.Device) (gpu.InstanceReading, bool) {
	if parent.err != nil {
		return gpu.InstanceReading{}, false
	}
	r := deviceReader{device: d, index: parent.index, step: parent.step}
	out := gpu.InstanceReading{
		UUID:            parse(&r, gpu.ParseUUID, ask(&r, "nvmlDeviceGetUUID", d.GetUUID)),
		GPUInstance:     ask(&r, "nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId),
		ComputeInstance: ask(&r, "nvmlDeviceGetComputeInstanceId", d.GetComputeInstanceId),
		Multiprocessors: int(told(&r, "nvmlDeviceGetAttributes", d.GetAttributes).Value.MultiprocessorCount),
	}
	out.Memory = m.memory(&r)
	out.Processes = m.processes(&r)
	return out, r.err == nil
}

// instanceActivity fills in what GPM tells of GPU instances. One that holds
// several MIG devices has one number for all, which is that of no device.
func (m *meter) instanceActivity(r *deviceReader, g *gpuMeter, list []gpu.InstanceReading) {
	devices := map[int]int{}
	for _, i := range list {
		devices[i.GPUInstance]++
	}
	for id := range g.counters {
		if id != wholeDevice && devices[id] == 0 {
			m.forget(g, id)
		}
	}
	for k := range list {
		if id := list[k].GPUInstance; devices[id] == 1 {
			list[k].SMActivity, _ = m.activity(r, g, id, list[k].UUID)
		}
	}
}

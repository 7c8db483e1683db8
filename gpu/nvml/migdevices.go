//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// migDevices lists the MIG devices of a GPU by calls that need no
// privilege, but for their places. One that goes away beside this is left out; their indices
// have holes. The error is of those that are there and could not be read.
func migDevices(parent *deviceReader, memoryV2 bool) (_ []gpu.MIGDevice, unread error) {
	most := ask(parent, "nvmlDeviceGetMaxMigDeviceCount", parent.device.GetMaxMigDeviceCount)
	if parent.err != nil {
		return nil, nil // the GPU has that error
	}
	all, inInstance := []gpu.MIGDevice{}, map[int]int{}
	fails := func(i int, err error) {
		unread = errors.Join(unread, fmt.Errorf("MIG device %d of the GPU with NVML index %d: %w", i, parent.index, err))
	}
	for i := range most {
		d, ret := migDeviceAt(parent, i)
		if isHole(ret) {
			continue
		}
		if ret != nvml.SUCCESS {
			fails(i, fmt.Errorf("nvmlDeviceGetMigDeviceHandleByIndex: %w", callError(ret)))
			continue
		}
		r := deviceReader{device: d, index: parent.index, step: parent.step}
		id := ask(&r, "nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId)
		if r.err == nil {
			inInstance[id]++
		}
		if m, ok := migDevice(&r, id, memoryV2); ok {
			m.Start = parent.startOf(id)
			all = append(all, m)
		}
		if r.err != nil {
			if _, ret := migDeviceAt(parent, i); !isHole(ret) {
				fails(i, r.err)
			}
		}
	}
	var own []gpu.MIGDevice
	for _, m := range all {
		if inInstance[m.GPUInstance] == 1 {
			own = append(own, m)
		}
	}
	return append([]gpu.MIGDevice{}, own...), unread // none is not "not read"
}

func migDeviceAt(parent *deviceReader, i int) (nvml.Device, nvml.Return) {
	parent.step(fmt.Sprintf("nvmlDeviceGetMigDeviceHandleByIndex of the GPU with NVML index %d", parent.index))
	return parent.device.GetMigDeviceHandleByIndex(i)
}

// isHole says that no MIG device has an index.
func isHole(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT
}

// startOf is where a GPU instance begins; nil where the caller may not know.
func (r *deviceReader) startOf(id int) *int {
	r.step(fmt.Sprintf("nvmlDeviceGetGpuInstanceById of the GPU with NVML index %d", r.index))
	gi, ret := r.device.GetGpuInstanceById(id)
	if ret != nvml.SUCCESS {
		return nil
	}
	info, ret := gi.GetInfo()
	if ret != nvml.SUCCESS {
		return nil
	}
	start := int(info.Placement.Start)
	return &start
}

// migDevice reads one; not ok if it is a part of a GPU instance ("1c.3g.20gb") or
// cannot be read.
func migDevice(r *deviceReader, id int, memoryV2 bool) (gpu.MIGDevice, bool) {
	m := gpu.MIGDevice{
		UUID:        parse(r, gpu.ParseUUID, ask(r, "nvmlDeviceGetUUID", r.device.GetUUID)),
		Profile:     profileIn(ask(r, "nvmlDeviceGetName", r.device.GetName)),
		GPUInstance: id,
		Memory:      gpu.MiBFromBytes(ask(r, "nvmlDeviceGetMemoryInfo", r.device.GetMemoryInfo).Total),
	}
	m.Reserved = r.reserved(memoryV2)
	m.Multiprocessors = int(optional(r, "nvmlDeviceGetAttributes", r.device.GetAttributes).MultiprocessorCount)
	return m, r.err == nil && m.Profile != ""
}

// profileIn finds the profile in a MIG device's name, whose last words it is
// ("NVIDIA A100-SXM4-40GB MIG 3g.20gb").
func profileIn(name string) string {
	_, last, found := strings.Cut(name, " MIG ")
	p, err := gpu.ParseProfileName(last)
	if !found || err != nil {
		return ""
	}
	return p.String()
}

//go:build cgo

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// unusualSymbols are the calls behind a GPU's traits that the driver exports.
type unusualSymbols struct {
	virtualization, display, confidential, numa bool
	// c2c is whether the GPU has a link to the CPU over which both share memory; nil where the
	// driver cannot say.
	c2c func(nvml.Device) (nvml.C2cModeInfo_v1, nvml.Return)
}

func c2cMode(d nvml.Device) (nvml.C2cModeInfo_v1, nvml.Return) { return d.GetC2cModeInfoV().V1() }

// errIntegrated: driver 580 reports no memory of a GB10 (NVIDIA's DGX Spark guide, known issues).
var errIntegrated = errors.New("it has no memory of its own, as on Jetson or GB10: its VRAM would be counted twice, " +
	"as VRAM and as main memory; gpuslot does not offer it")

// total is the memory of the device.
func (r *deviceReader) total() gpu.MiB {
	info := ask(r, "nvmlDeviceGetMemoryInfo", func() (nvml.Memory, nvml.Return) {
		info, ret := r.device.GetMemoryInfo()
		if ret == nvml.ERROR_NOT_SUPPORTED {
			return nvml.Memory{}, nvml.SUCCESS
		}
		return info, ret
	})
	if r.err == nil && info.Total == 0 {
		r.err = errIntegrated
	}
	return gpu.MiBFromBytes(info.Total)
}

// unusual are the traits of the device. A call that fails names none: most drivers answer
// "not supported" on usual GPUs.
func (r *deviceReader) unusual(lib nvml.Interface, has unusualSymbols) (traits []gpu.Trait) {
	if r.err != nil {
		return nil
	}
	find := func(t gpu.Trait, call string, known bool, is func() bool) {
		if !known {
			return
		}
		r.step(fmt.Sprintf("%s of the GPU with NVML index %d", call, r.index))
		if is() {
			traits = append(traits, t)
		}
	}
	mode := func(want nvml.GpuVirtualizationMode) func() bool {
		return func() bool {
			now, ret := r.device.GetVirtualizationMode()
			return ret == nvml.SUCCESS && now == want
		}
	}
	find(gpu.VGPU, "nvmlDeviceGetVirtualizationMode", has.virtualization, mode(nvml.GPU_VIRTUALIZATION_MODE_VGPU))
	find(gpu.HostVGPU, "nvmlDeviceGetVirtualizationMode", has.virtualization, mode(nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU))
	find(gpu.Display, "nvmlDeviceGetDisplayActive", has.display, func() bool {
		now, ret := r.device.GetDisplayActive()
		return ret == nvml.SUCCESS && now == nvml.FEATURE_ENABLED
	})
	find(gpu.Confidential, "nvmlSystemGetConfComputeState", has.confidential, func() bool {
		now, ret := lib.SystemGetConfComputeState()
		return ret == nvml.SUCCESS && now.CcFeature == nvml.CC_SYSTEM_FEATURE_ENABLED
	})
	find(gpu.NUMAMemory, "nvmlDeviceGetNumaNodeId", has.numa, func() bool {
		node, ret := r.device.GetNumaNodeId()
		if ret != nvml.SUCCESS || node < 0 || has.c2c == nil {
			return ret == nvml.SUCCESS && node >= 0
		}
		// By nvml.h only GPUs that are NUMA nodes answer. NVIDIA's mock library names the node
		// that any GPU is attached to.
		link, ret := has.c2c(r.device)
		return ret != nvml.ERROR_NOT_SUPPORTED && (ret != nvml.SUCCESS || link.IsC2cEnabled == 1)
	})
	return traits
}

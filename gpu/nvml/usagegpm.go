//go:build cgo

package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// wholeDevice stands for a GPU's own counters among those of its GPU instances.
const wholeDevice = -1

// counters are the GPM counters of a GPU or GPU instance at the last reading,
// and room for the next ones.
type counters struct {
	// owner is the MIG device the counters were read for: ids of GPU instances
	// are used again.
	owner       gpu.UUID
	last, spare nvml.GpmSample
	at          time.Time
	taken       bool
}

// activity is the mean share of busy SMs since the last reading; unknown at the
// first, and where two readings are so close that the driver holds no newer
// counters (100 ms).
func (m *meter) activity(r *deviceReader, g *gpuMeter, instance int, owner gpu.UUID) gpu.Measured[gpu.Activity] {
	if !m.hasGPM(r, g) || instance != wholeDevice && !m.has.gpmMIG {
		return gpu.Measured[gpu.Activity]{}
	}
	c := m.counters(r, g, instance, owner)
	if c == nil {
		return gpu.Measured[gpu.Activity]{}
	}
	now := time.Now()
	taken := told(r, "nvmlGpmSampleGet", func() (struct{}, nvml.Return) {
		if instance == wholeDevice {
			return struct{}{}, r.device.GpmSampleGet(c.spare)
		}
		return struct{}{}, r.device.GpmMigSampleGet(instance, c.spare)
	})
	if !taken.Known {
		return gpu.Measured[gpu.Activity]{}
	}
	if !c.taken {
		c.turn(now)
		return gpu.Measured[gpu.Activity]{}
	}
	ratio := m.busySMs(r, c)
	if !ratio.Known {
		if now.Sub(c.at) > time.Second { // the pair does not fit together: begin anew
			c.turn(now)
		}
		return gpu.Measured[gpu.Activity]{}
	}
	from := c.at
	c.turn(now)
	return gpu.Known(gpu.Activity{Ratio: ratio.Value, From: from, To: now})
}

// turn makes the counters just read the last ones.
func (c *counters) turn(now time.Time) {
	c.last, c.spare, c.at, c.taken = c.spare, c.last, now, true
}

// busySMs is NVML_GPM_METRIC_SM_UTIL between the last counters and the new ones.
func (m *meter) busySMs(r *deviceReader, c *counters) gpu.Measured[float64] {
	get := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: c.last, Sample2: c.spare}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	got := told(r, "nvmlGpmMetricsGet", func() (nvml.GpmMetric, nvml.Return) {
		ret := m.lib.GpmMetricsGet(&get)
		if ret == nvml.ERROR_INVALID_ARGUMENT { // the GPU instance was made anew
			ret = nvml.ERROR_NO_DATA
		}
		return get.Metrics[0], ret
	})
	v := got.Value.Value / 100
	const slack = 0.05 // beyond which it is no rounding
	if !got.Known || nvml.Return(got.Value.NvmlReturn) != nvml.SUCCESS || !(v >= 0 && v <= 1+slack) {
		return gpu.Measured[float64]{}
	}
	return gpu.Known(min(v, 1))
}

// hasGPM asks a GPU once.
func (m *meter) hasGPM(r *deviceReader, g *gpuMeter) bool {
	if !m.has.gpm {
		return false
	}
	if !g.gpm.Known {
		s := told(r, "nvmlGpmQueryDeviceSupport", r.device.GpmQueryDeviceSupport)
		if r.err == nil {
			g.gpm = gpu.Known(s.Known && s.Value.IsSupportedDevice != 0)
		}
	}
	return g.gpm.Value
}

func (m *meter) counters(r *deviceReader, g *gpuMeter, instance int, owner gpu.UUID) *counters {
	if c := g.counters[instance]; c != nil && c.owner == owner {
		return c
	}
	m.forget(g, instance)
	last := told(r, "nvmlGpmSampleAlloc", m.lib.GpmSampleAlloc)
	spare := told(r, "nvmlGpmSampleAlloc", m.lib.GpmSampleAlloc)
	if !last.Known || !spare.Known {
		if last.Known {
			_ = last.Value.Free() // the other one was refused: that is the news
		}
		return nil
	}
	if g.counters == nil {
		g.counters = map[int]*counters{}
	}
	c := &counters{owner: owner, last: last.Value, spare: spare.Value}
	g.counters[instance] = c
	return c
}

// forget frees the counters of a GPU instance.
func (m *meter) forget(g *gpuMeter, instance int) {
	c := g.counters[instance]
	if c == nil {
		return
	}
	m.step("nvmlGpmSampleFree")
	// Freeing fails for what is no sample only.
	_ = c.last.Free()
	_ = c.spare.Free()
	delete(g.counters, instance)
}

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

// activity is the mean share of busy SMs since the last reading, and of the
// memory's bandwidth in use; unknown at the first, and where two readings are so
// close that the driver holds no newer counters (100 ms).
func (m *meter) activity(r *deviceReader, g *gpuMeter, instance int,
	owner gpu.UUID) (sm, dram gpu.Measured[gpu.Activity]) {
	if !m.hasGPM(r, g) || instance != wholeDevice && !m.has.gpmMIG {
		return sm, dram
	}
	c := m.counters(r, g, instance, owner)
	if c == nil {
		return sm, dram
	}
	now := time.Now()
	taken := told(r, "nvmlGpmSampleGet", func() (struct{}, nvml.Return) {
		if instance == wholeDevice {
			return struct{}{}, r.device.GpmSampleGet(c.spare)
		}
		return struct{}{}, r.device.GpmMigSampleGet(instance, c.spare)
	})
	if !taken.Known {
		return sm, dram
	}
	if !c.taken {
		c.turn(now)
		return sm, dram
	}
	busy, bandwidth := m.ratios(r, c)
	if !busy.Known {
		if now.Sub(c.at) > time.Second { // the pair does not fit together: begin again
			c.turn(now)
		}
		return sm, dram
	}
	from := c.at
	c.turn(now)
	mean := func(ratio gpu.Measured[float64]) gpu.Measured[gpu.Activity] {
		return gpu.Measured[gpu.Activity]{Value: gpu.Activity{Ratio: ratio.Value, From: from, To: now}, Known: ratio.Known}
	}
	return mean(busy), mean(bandwidth)
}

// turn makes the counters just read the last ones.
func (c *counters) turn(now time.Time) {
	c.last, c.spare, c.at, c.taken = c.spare, c.last, now, true
}

// ratios are NVML_GPM_METRIC_SM_UTIL and _DRAM_BW_UTIL between the last counters
// and the new ones. A GPU without the second keeps the first.
func (m *meter) ratios(r *deviceReader, c *counters) (sm, dram gpu.Measured[float64]) {
	get := nvml.GpmMetricsGetType{NumMetrics: 2, Sample1: c.last, Sample2: c.spare}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	get.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_DRAM_BW_UTIL)
	got := told(r, "nvmlGpmMetricsGet", func() (struct{}, nvml.Return) {
		ret := m.lib.GpmMetricsGet(&get)
		if ret == nvml.ERROR_INVALID_ARGUMENT { // the GPU instance was made again
			ret = nvml.ERROR_NO_DATA
		}
		return struct{}{}, ret
	})
	if !got.Known {
		return sm, dram
	}
	return ratioOf(get.Metrics[0]), ratioOf(get.Metrics[1])
}

// ratioOf is a metric that the driver tells in per cent.
func ratioOf(g nvml.GpmMetric) gpu.Measured[float64] {
	v := g.Value / 100
	const slack = 0.05 // beyond which it is no rounding
	if nvml.Return(g.NvmlReturn) != nvml.SUCCESS || !(v >= 0 && v <= 1+slack) {
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

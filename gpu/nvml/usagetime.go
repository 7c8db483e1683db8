//go:build cgo

package nvml

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// longestPeriod is the longest time between two of the driver's samples
// ("between 1 second and 1/6 second depending on the product", nvidia-smi(1)),
// with some delay. Samples further apart leave time that was not sampled.
const longestPeriod = 1500 * time.Millisecond

// kernelTime is the share of the time since the last reading in which any
// kernel ran: the mean of the driver's samples. It is unknown at the first
// reading and where samples are missing.
func (m *meter) kernelTime(r *deviceReader, g *gpuMeter) gpu.Measured[gpu.Activity] {
	type reply struct {
		kind    nvml.ValueType
		samples []nvml.Sample
	}
	now := time.Now()
	got := told(r, "nvmlDeviceGetSamples", func() (reply, nvml.Return) {
		kind, samples, ret := r.device.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, g.sampled)
		return reply{kind, samples}, ret
	})
	from := g.sampledAt
	g.sampledAt = now
	if r.err != nil {
		return gpu.Measured[gpu.Activity]{}
	}
	var ratio gpu.Measured[float64]
	if got.Known && got.Value.kind == nvml.VALUE_TYPE_UNSIGNED_INT {
		ratio, g.sampled = meanOf(got.Value.samples, g.sampled)
	} else {
		ratio = idle(r)
	}
	if !ratio.Known || from.IsZero() {
		return gpu.Measured[gpu.Activity]{}
	}
	return gpu.Known(gpu.Activity{Ratio: ratio.Value, From: from, To: now})
}

// meanOf weighs each sample by its period and returns the newest time stamp.
// The ring buffer holds old samples too, and its end may be empty.
func meanOf(samples []nvml.Sample, since uint64) (mean gpu.Measured[float64], newest uint64) {
	slices.SortFunc(samples, func(a, b nvml.Sample) int {
		if a.TimeStamp < b.TimeStamp {
			return -1
		}
		return 1
	})
	newest = since
	var sum, time float64
	whole := since > 0
	for _, s := range samples {
		if s.TimeStamp <= newest {
			continue
		}
		percent := binary.NativeEndian.Uint32(s.SampleValue[:4])
		period := s.TimeStamp - newest
		whole = whole && percent <= 100 && period <= uint64(longestPeriod.Microseconds())
		sum += float64(percent) / 100 * float64(period)
		time += float64(period)
		newest = s.TimeStamp
	}
	if !whole || time == 0 {
		return gpu.Measured[float64]{}, newest
	}
	return gpu.Known(sum / time), newest
}

// idle tells a GPU that does nothing from one without data: an idle GPU's
// buffer runs dry, and its rate is 0.
func idle(r *deviceReader) gpu.Measured[float64] {
	rates := told(r, "nvmlDeviceGetUtilizationRates", r.device.GetUtilizationRates)
	return gpu.Measured[float64]{Known: rates.Known && rates.Value.Gpu == 0}
}

// processSamples are the newest shares of kernel time of the processes that
// worked since the last reading.
func (m *meter) processSamples(r *deviceReader, g *gpuMeter) gpu.Measured[[]gpu.ProcessSample] {
	got := told(r, "nvmlDeviceGetProcessUtilization", func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return processUtilization(r.device, g.worked)
	})
	if !got.Known {
		return gpu.Measured[[]gpu.ProcessSample]{}
	}
	var out []gpu.ProcessSample
	out, g.worked = sift(got.Value, g.worked)
	return gpu.Known(out)
}

// processUtilization asks again when the list grew between the two calls of
// the binding: then it returns a part, or indexes beyond its own buffer (go-nvml
// v0.13.4, GetProcessUtilization), which would end the agent.
func processUtilization(d nvml.Device, since uint64) (samples []nvml.ProcessUtilizationSample, ret nvml.Return) {
	once := func() {
		defer func() {
			if recover() != nil {
				samples, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
			}
		}()
		samples, ret = d.GetProcessUtilization(since)
	}
	for range 3 {
		if once(); ret != nvml.ERROR_INSUFFICIENT_SIZE {
			return samples, ret
		}
	}
	return nil, nvml.ERROR_NO_DATA
}

// sift keeps the newest sample of each process and drops what is no sample:
// old ones, PID 0 and values that are no per cent.
func sift(samples []nvml.ProcessUtilizationSample, since uint64) (out []gpu.ProcessSample, newest uint64) {
	slices.SortStableFunc(samples, func(a, b nvml.ProcessUtilizationSample) int {
		if a.Pid != b.Pid {
			return int(a.Pid) - int(b.Pid)
		}
		if a.TimeStamp > b.TimeStamp {
			return -1
		}
		return 1
	})
	newest = since
	for _, s := range samples {
		if s.TimeStamp <= since || s.Pid == 0 || s.SmUtil > 100 {
			continue
		}
		newest = max(newest, s.TimeStamp)
		if n := len(out); n > 0 && out[n-1].PID == int(s.Pid) {
			continue
		}
		out = append(out, gpu.ProcessSample{PID: int(s.Pid), SM: float64(s.SmUtil) / 100})
	}
	return out, newest
}

//go:build cgo

package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// boardEvery is the time between two readings of what changes slowly: seven
// calls for each GPU.
const boardEvery = 10 * time.Second

// board reads it, or repeats the last. What goes wrong here leaves a value
// unknown and the GPU's reading whole: no slot's usage rests on it.
func (m *meter) board(r *deviceReader, g *gpuMeter) gpu.Board {
	if !m.has.board || r.err != nil || !g.boardAt.IsZero() && time.Since(g.boardAt) < boardEvery {
		return g.board
	}
	clock := func(t nvml.ClockType) gpu.Measured[uint32] {
		return aside(r, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return r.device.GetClockInfo(t) })
	}
	errors := func(t nvml.MemoryErrorType) gpu.Measured[uint64] {
		return aside(r, "nvmlDeviceGetTotalEccErrors",
			func() (uint64, nvml.Return) { return r.device.GetTotalEccErrors(t, nvml.AGGREGATE_ECC) })
	}
	limits := aside(r, "nvmlDeviceGetCurrentClocksThrottleReasons", r.device.GetCurrentClocksThrottleReasons)
	g.boardAt = time.Now()
	g.board = gpu.Board{
		Temperature: aside(r, "nvmlDeviceGetTemperature",
			func() (uint32, nvml.Return) { return r.device.GetTemperature(nvml.TEMPERATURE_GPU) }),
		PowerLimit: aside(r, "nvmlDeviceGetEnforcedPowerLimit", r.device.GetEnforcedPowerLimit),
		SMClock:    clock(nvml.CLOCK_SM), MemoryClock: clock(nvml.CLOCK_MEM),
		Limits:    gpu.Measured[gpu.ClockLimits]{Value: gpu.ClockLimits(limits.Value), Known: limits.Known},
		Corrected: errors(nvml.MEMORY_ERROR_TYPE_CORRECTED), Uncorrected: errors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED),
	}
	return g.board
}

// aside makes one call whose failure is no failure of the GPU's reading.
func aside[T any](r *deviceReader, name string, call func() (T, nvml.Return)) gpu.Measured[T] {
	own := deviceReader{device: r.device, index: r.index, step: r.step}
	return told(&own, name, call)
}

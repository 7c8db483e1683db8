//go:build cgo

package nvml

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// usageLimit bounds the reading of one GPU.
const usageLimit = 5 * time.Second

// Usage reads what the GPUs do, again and again. It keeps between two readings
// what NVML needs to tell of the time between them. One goroutine uses it.
type Usage struct {
	l *Library
	// m is touched by the worker only.
	m *meter
}

// Usage begins a series of readings.
func (l *Library) Usage() *Usage { return &Usage{l: l, m: &meter{lib: l.lib, step: l.worker.step}} }

// Read asks every GPU. A GPU that does not answer has its Err set and the
// others are read all the same. An error says that NVML itself does not
// answer: then readings holds the GPUs asked before, and nobody has asked the
// others. Each GPU is one turn of the library's worker, so that a change of
// compute mode does not wait for the whole node.
func (u *Usage) Read(ctx context.Context) (readings []gpu.Reading, err error) {
	count, err := run(ctx, u.l.worker, usageLimit, u.m.begin)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	for i := range count {
		r, err := run(ctx, u.l.worker, usageLimit, func() (gpu.Reading, error) { return u.m.read(i), nil })
		if err != nil {
			return readings, fmt.Errorf("read usage: %w", err)
		}
		readings = append(readings, r)
	}
	return readings, nil
}

// Close frees what NVML keeps for the readings; none may follow.
func (u *Usage) Close(ctx context.Context) error {
	_, err := run(ctx, u.l.worker, usageLimit, func() (struct{}, error) {
		u.m.close()
		return struct{}{}, nil
	})
	return err
}

// meter is the state of a series of readings.
type meter struct {
	lib  nvml.Interface
	step func(string)
	has  *usageSymbols
	// gpus by NVML's index.
	gpus []*gpuMeter
}

// gpuMeter is what is remembered of one GPU.
type gpuMeter struct {
	uuid gpu.UUID
	// sampled and worked are the driver's time stamps (µs) up to which samples
	// of the GPU and of its processes were read.
	sampled, worked uint64
	sampledAt       time.Time
	sms             gpu.Measured[int]
	// gpm says whether the GPU has GPM.
	gpm      gpu.Measured[bool]
	counters map[int]*counters
	board    gpu.Board
	boardAt  time.Time
}

// usageSymbols are the calls of a reading that not every driver exports.
type usageSymbols struct {
	memoryV2, mps, mig, cores, samples, processSamples, energy, gpm, gpmMIG bool
	// board: all calls of a Board.
	board bool
	// processes is false on drivers whose process struct differs from NVIDIA's header.
	processes bool
}

func lookUpUsage(lib nvml.Interface) *usageSymbols {
	ext := lib.Extensions()
	has := func(name string) bool { return ext.LookupSymbol(name) == nil }
	// Each list has had three versions; the binding takes the newest there is.
	any3 := func(name string) bool { return has(name) || has(name+"_v2") || has(name+"_v3") }
	driver, _ := lib.SystemGetDriverVersion()
	return &usageSymbols{
		memoryV2:       has("nvmlDeviceGetMemoryInfo_v2"), // 525
		mps:            any3("nvmlDeviceGetMPSComputeRunningProcesses"),
		mig:            has("nvmlDeviceGetMigMode") && has("nvmlDeviceGetMigDeviceHandleByIndex"), // 450
		cores:          has("nvmlDeviceGetNumGpuCores"),                                           // 525
		samples:        has("nvmlDeviceGetSamples"),
		processSamples: has("nvmlDeviceGetProcessUtilization"),
		energy:         has("nvmlDeviceGetTotalEnergyConsumption"),
		gpm:            has("nvmlGpmQueryDeviceSupport") && has("nvmlGpmSampleGet") && has("nvmlGpmMetricsGet"), // 525
		gpmMIG:         has("nvmlGpmMigSampleGet"),                                                              // 525
		processes:      any3("nvmlDeviceGetComputeRunningProcesses") && !brokenProcessStruct(driver),
		board: has("nvmlDeviceGetTemperature") && has("nvmlDeviceGetEnforcedPowerLimit") && has("nvmlDeviceGetClockInfo") &&
			has("nvmlDeviceGetCurrentClocksThrottleReasons") && has("nvmlDeviceGetTotalEccErrors"),
	}
}

// begin counts the GPUs.
func (m *meter) begin() (int, error) {
	if m.has == nil {
		m.step("nvmlSystemGetDriverVersion")
		m.has = lookUpUsage(m.lib)
	}
	m.step("nvmlDeviceGetCount")
	count, ret := m.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("count GPUs: %w", callError(ret))
	}
	for len(m.gpus) < count {
		m.gpus = append(m.gpus, &gpuMeter{})
	}
	return count, nil
}

// close frees the counters.
func (m *meter) close() {
	for _, g := range m.gpus {
		m.drop(g)
	}
	m.gpus = nil
}

func (m *meter) drop(g *gpuMeter) {
	for id := range g.counters {
		m.forget(g, id)
	}
}

// read asks one GPU for everything.
func (m *meter) read(index int) gpu.Reading {
	r := deviceReader{index: index, step: m.step}
	g := m.gpus[index]
	out := gpu.Reading{Index: index, At: time.Now(), GPU: g.uuid}
	d := ask(&r, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) { return m.lib.DeviceGetHandleByIndex(index) })
	if r.err == nil {
		r.device = d
		out.GPU = parse(&r, gpu.ParseUUID, ask(&r, "nvmlDeviceGetUUID", d.GetUUID))
	}
	if r.err == nil && out.GPU != g.uuid {
		m.drop(g)
		*g = gpuMeter{uuid: out.GPU} // another GPU has this index now
	}
	if r.err == nil {
		m.fill(&r, g, &out)
	}
	if r.err != nil {
		return gpu.Reading{Index: index, At: out.At, GPU: g.uuid, Err: r.err}
	}
	return out
}

// fill reads what a GPU has. The first error ends it: a GPU that breaks in the
// middle of a reading is not half well.
func (m *meter) fill(r *deviceReader, g *gpuMeter, out *gpu.Reading) {
	if m.has.mig {
		_, out.MIGEnabled = r.migMode()
	}
	out.Memory = m.memory(r)
	out.Multiprocessors = m.multiprocessors(r, g)
	if m.has.energy {
		out.Energy = told(r, "nvmlDeviceGetTotalEnergyConsumption", r.device.GetTotalEnergyConsumption)
	}
	power := told(r, "nvmlDeviceGetPowerUsage", r.device.GetPowerUsage)
	out.Power = gpu.Measured[uint64]{Value: uint64(power.Value), Known: power.Known}
	out.Board = m.board(r, g)
	if out.MIGEnabled {
		out.SMActivity = m.activity(r, g, wholeDevice, "")
		out.Instances = m.instances(r, g)
		return
	}
	out.Processes = m.processes(r)
	if m.has.samples {
		out.KernelTime = m.kernelTime(r, g)
	}
	if m.has.processSamples {
		out.Samples = m.processSamples(r, g)
	}
	out.SMActivity = m.activity(r, g, wholeDevice, "")
}

// multiprocessors of a GPU are asked once.
func (m *meter) multiprocessors(r *deviceReader, g *gpuMeter) int {
	if !g.sms.Known && m.has.cores {
		c := r.capability()
		cores := told(r, "nvmlDeviceGetNumGpuCores", r.device.GetNumGpuCores)
		g.sms = gpu.Measured[int]{Value: multiprocessors(c, cores.Value), Known: r.err == nil}
	}
	return g.sms.Value
}

// told makes one call of which NVML may answer that there is nothing to tell.
func told[T any](r *deviceReader, name string, call func() (T, nvml.Return)) gpu.Measured[T] {
	var known bool
	v := ask(r, name, func() (T, nvml.Return) {
		v, ret := call()
		known = ret == nvml.SUCCESS
		if silent(ret) {
			return v, nvml.SUCCESS
		}
		return v, ret
	})
	return gpu.Measured[T]{Value: v, Known: known && r.err == nil}
}

// silent are the answers that say: nothing to tell.
func silent(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_PERMISSION, nvml.ERROR_NO_DATA:
		return true
	}
	return false
}

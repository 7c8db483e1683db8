//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// usageLimit bounds a call about all GPUs.
const usageLimit = 5 * time.Second

// Usage reads what the GPUs do, again and again. It keeps between two readings
// what NVML needs to tell of the time between them. One goroutine uses it.
//
// Each GPU has a worker of its own, beside the library's: NVML may be called
// from several threads, and a GPU whose calls are slow or hang keeps no other
// from being read.
type Usage struct {
	lib     nvml.Interface
	count   *worker
	has     *usageSymbols
	readers []*reader
}

// reader reads one GPU.
type reader struct {
	w *worker
	m *meter
	// uuid is that of the last reading.
	uuid gpu.UUID
	// asked delivers the reading that was asked for last; nil if it was had.
	asked chan gpu.Reading
}

// Usage begins a series of readings.
func (l *Library) Usage() *Usage { return &Usage{lib: l.lib, count: newWorker()} }

// Read asks every GPU, all at once. A GPU that does not answer has its Err set,
// and the others are read all the same. What a GPU answers after ctx has ended
// is its reading of the next call: no answer is lost because it came late. An
// error says that NVML itself does not answer.
func (u *Usage) Read(ctx context.Context) ([]gpu.Reading, error) {
	if err := u.begin(ctx); err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	readings := make([]gpu.Reading, len(u.readers))
	for i, r := range u.readers {
		r.ask(i)
	}
	for i, r := range u.readers {
		readings[i] = r.wait(ctx, i)
	}
	return readings, nil
}

// begin counts the GPUs. What the driver exports is looked up once.
func (u *Usage) begin(ctx context.Context) error {
	type answer struct {
		has   *usageSymbols
		count int
	}
	has := u.has
	a, err := run(ctx, u.count, usageLimit, func() (answer, error) {
		if has == nil {
			u.count.step("nvmlSystemGetDriverVersion")
			has = lookUpUsage(u.lib)
		}
		u.count.step("nvmlDeviceGetCount")
		count, ret := u.lib.DeviceGetCount()
		if ret != nvml.SUCCESS {
			return answer{}, fmt.Errorf("count GPUs: %w", callError(ret))
		}
		return answer{has, count}, nil
	})
	if err != nil {
		return err
	}
	u.has = a.has
	for len(u.readers) < a.count {
		w := newWorker()
		u.readers = append(u.readers, &reader{w: w, m: &meter{lib: u.lib, step: w.step, has: u.has}})
	}
	for _, r := range u.readers[a.count:] {
		r.end()
	}
	u.readers = u.readers[:a.count]
	return nil
}

// ask has the worker read the GPU, unless it still does.
func (r *reader) ask(index int) {
	if r.asked != nil {
		return
	}
	asked := make(chan gpu.Reading, 1) // buffered: the receiver may have given up
	r.asked = asked
	r.w.jobs <- func() { asked <- r.m.read(index) } // at once: it has nothing else to do
}

func (r *reader) wait(ctx context.Context, index int) gpu.Reading {
	// An answer that is there counts, also where the time is up.
	select {
	case got := <-r.asked:
		return r.had(got)
	default:
	}
	select {
	case got := <-r.asked:
		return r.had(got)
	case <-ctx.Done():
		return gpu.Reading{Index: index, At: time.Now(), GPU: r.uuid, Err: r.w.hangs(ctx)}
	}
}

func (r *reader) had(got gpu.Reading) gpu.Reading {
	r.asked, r.uuid = nil, got.GPU
	return got
}

// end frees what NVML keeps for the GPU as soon as its worker is free.
func (r *reader) end() {
	go func() {
		r.w.jobs <- r.m.close
		r.w.stop()
	}()
}

// Close frees what NVML keeps for the readings; none may follow.
func (u *Usage) Close(ctx context.Context) error {
	var errs []error
	for _, r := range u.readers {
		_, err := run(ctx, r.w, usageLimit, func() (struct{}, error) {
			r.m.close()
			return struct{}{}, nil
		})
		errs = append(errs, err)
		r.w.stop()
	}
	u.readers = nil
	u.count.stop()
	return errors.Join(errs...)
}

// meter is the state of a series of readings of one GPU.
type meter struct {
	lib  nvml.Interface
	step func(string)
	has  *usageSymbols
	gpu  gpuMeter
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
	processes, graphics bool
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
		graphics:       any3("nvmlDeviceGetGraphicsRunningProcesses"),
		board: has("nvmlDeviceGetTemperature") && has("nvmlDeviceGetEnforcedPowerLimit") && has("nvmlDeviceGetClockInfo") &&
			has("nvmlDeviceGetCurrentClocksThrottleReasons") && has("nvmlDeviceGetTotalEccErrors"),
	}
}

// close frees the counters.
func (m *meter) close() { m.drop(&m.gpu) }

func (m *meter) drop(g *gpuMeter) {
	for id := range g.counters {
		m.forget(g, id)
	}
}

// read asks one GPU for everything.
func (m *meter) read(index int) gpu.Reading {
	r := deviceReader{index: index, step: m.step}
	g := &m.gpu
	out := gpu.Reading{Index: index}
	d := ask(&r, "nvmlDeviceGetHandleByIndex",
		func() (nvml.Device, nvml.Return) { return m.lib.DeviceGetHandleByIndex(index) })
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
	out.At = time.Now()
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
		out.SMActivity, out.DRAMActivity = m.activity(r, g, wholeDevice, "")
		out.Instances = m.instances(r, g)
		return
	}
	out.Processes = m.processes(r)
	if m.has.samples {
		out.KernelTime = m.kernelTime(r, g)
	}
	// Those of MPS clients tell nothing of their shares, and the driver goes through all of them.
	if m.has.processSamples && !hasClients(out.Processes.Value) {
		out.Samples = m.processSamples(r, g)
	}
	out.SMActivity, out.DRAMActivity = m.activity(r, g, wholeDevice, "")
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
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_PERMISSION,
		nvml.ERROR_NO_DATA:
		return true
	}
	return false
}

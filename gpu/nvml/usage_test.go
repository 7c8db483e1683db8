//go:build cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// busyDevice is a GPU at work; what it lacks panics, as a missing symbol does.
type busyDevice struct {
	fakeDevice
	compute, clients []nvml.ProcessInfo
	listed           nvml.Return
	// lists is when the processes were last listed.
	lists *time.Time
	// sm are the GPM counters: percent-seconds, and the seconds of the clock.
	sm, clock *float64
	// noDRAM: the GPU has no metric of its memory's bandwidth.
	noDRAM bool
}

func (d busyDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	if d.lists != nil {
		time.Sleep(time.Millisecond) // a driver that is slow
		*d.lists = time.Now()
	}
	return d.compute, d.listed
}
func (d busyDevice) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.clients, nvml.SUCCESS
}
func (d busyDevice) GetPowerUsage() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
func (d busyDevice) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	return nvml.GpmSupport{IsSupportedDevice: 1}, nvml.SUCCESS
}
func (d busyDevice) GpmSampleGet(s nvml.GpmSample) nvml.Return {
	f := s.(*gpmSample)
	f.sm, f.clock = *d.sm, *d.clock
	return nvml.SUCCESS
}

// gpmSample is a copy of the counters.
type gpmSample struct {
	nvml.GpmSample
	sm, clock float64
	live      *int
}

func (s *gpmSample) Free() nvml.Return { *s.live--; return nvml.SUCCESS }

// busyLibrary has one GPU.
type busyLibrary struct {
	nvml.Interface
	device nvml.Device
	live   *int
}

func (l busyLibrary) DeviceGetCount() (int, nvml.Return) { return 1, nvml.SUCCESS }
func (l busyLibrary) DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return) {
	return l.device, nvml.SUCCESS
}
func (l busyLibrary) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	*l.live++
	return &gpmSample{live: l.live}, nvml.SUCCESS
}

// GpmMetricsGet answers as nvml.h says: the mean between the samples, and
// nothing for those less than 100 ms apart.
func (l busyLibrary) GpmMetricsGet(g *nvml.GpmMetricsGetType) nvml.Return {
	a, b := g.Sample1.(*gpmSample), g.Sample2.(*gpmSample)
	for i := range g.NumMetrics {
		m := &g.Metrics[i]
		switch {
		case m.MetricId != uint32(nvml.GPM_METRIC_SM_UTIL) && m.MetricId != uint32(nvml.GPM_METRIC_DRAM_BW_UTIL):
			return nvml.ERROR_INVALID_ARGUMENT
		case b.clock-a.clock < 0.1:
			m.NvmlReturn = uint32(nvml.ERROR_NO_DATA)
		case m.MetricId == uint32(nvml.GPM_METRIC_SM_UTIL):
			m.Value = (b.sm - a.sm) / (b.clock - a.clock)
		case l.device.(*busyDevice).noDRAM:
			m.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		default: // the memory is half as busy
			m.Value = (b.sm - a.sm) / (b.clock - a.clock) / 2
		}
	}
	return nvml.SUCCESS
}

func busyMeter(d *busyDevice, has usageSymbols) (*meter, *int) {
	live := 0
	d.sm, d.clock = new(float64), new(float64)
	return &meter{lib: busyLibrary{device: d, live: &live}, step: func(string) {}, has: &has}, &live
}

func process(pid uint32, mib uint64) nvml.ProcessInfo {
	return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: mib << 20}
}

func TestProcessesAreTheUnionOfAllLists(t *testing.T) {
	unknown := nvml.ProcessInfo{Pid: 40, UsedGpuMemory: notAvailable}
	got := union(
		[]nvml.ProcessInfo{process(30, 100), process(10, 28), process(0, 7), unknown, process(50, 1)},
		[]nvml.ProcessInfo{process(20, 300), process(30, 90), unknown, {Pid: 50, UsedGpuMemory: notAvailable}},
		[]nvml.ProcessInfo{process(60, 20000), process(10, 29)},
	)
	mib := func(n uint64) gpu.Measured[gpu.Bytes] { return gpu.Known(gpu.Bytes(n << 20)) }
	want := []gpu.DeviceProcess{
		{PID: 10, Memory: mib(29)},
		{PID: 20, Memory: mib(300), MPSClient: true},
		{PID: 30, Memory: mib(100), MPSClient: true}, // the larger, not the sum
		{PID: 40, MPSClient: true},
		{PID: 50, Memory: mib(1), MPSClient: true},
		{PID: 60, Memory: mib(20000), Graphics: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMemoryAddsUpWhateverUsedMeans(t *testing.T) {
	const total, reserved, free = 80 << 30, 1 << 30, 60 << 30
	want := gpu.Known(gpu.MemoryUse{Total: total, Free: free, Used: 19 << 30, Reserved: gpu.Known(gpu.Bytes(reserved))})
	// nvml.h says both of "used": that it contains the reserve and that it does not.
	for _, used := range []uint64{19 << 30, 20 << 30} {
		if got := memoryV2(nvml.Memory_v2{Total: total, Reserved: reserved, Free: free, Used: used}); got != want {
			t.Errorf("used %d: %+v", used, got)
		}
	}
	for _, bad := range []nvml.Memory_v2{{}, {Total: 1, Free: 2}, {Total: 2, Free: 1, Reserved: 2}} {
		if got := memoryV2(bad); got.Known {
			t.Errorf("%+v: %+v", bad, got)
		}
	}
}

func TestBrokenProcessStruct(t *testing.T) {
	for driver, want := range map[string]bool{
		"535.43.02": true, "535.54.03": true, "535.86.05": true,
		"535.42.01": false, "535.98": false, "535.104.05": false, "535.274.02": false, "550.54.15": false, "525.60.13": false, "535": false, "": false,
	} {
		if brokenProcessStruct(driver) != want {
			t.Errorf("%s", driver)
		}
	}
}

// The fake panics on calls that it lacks: only what the driver exports is asked.
func TestReadingAsksAnOldDriverOnlyWhatItHas(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a), compute: []nvml.ProcessInfo{process(7, 1)}, clients: []nvml.ProcessInfo{process(8, 1)}}
	m, _ := busyMeter(&d, usageSymbols{processes: true})
	r := m.read(0)
	if r.Err != nil || !r.Processes.Known || len(r.Processes.Value) != 1 || !r.Memory.Known || r.Memory.Value.Reserved.Known || r.SMActivity.Known || r.Energy.Known || r.Power.Known {
		t.Errorf("%+v", r)
	}
	m, _ = busyMeter(&d, usageSymbols{})
	if r := m.read(0); r.Err != nil || r.Processes.Known {
		t.Errorf("a driver whose process lists cannot be trusted: %+v", r)
	}
}

// Of MPS clients the driver's samples tell nothing: they are not asked for.
func TestClientsAreNotSampled(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a), clients: []nvml.ProcessInfo{process(8, 1)}}
	m, _ := busyMeter(&d, usageSymbols{processes: true, mps: true, processSamples: true})
	if r := m.read(0); r.Err != nil || r.Samples.Known {
		t.Errorf("%+v", r)
	}
}

// TestTimeOfAReading: a process that started while the GPU answered is older than the reading. It counted as ended.
func TestTimeOfAReading(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a), lists: &time.Time{}}
	m, _ := busyMeter(&d, usageSymbols{processes: true})
	if r := m.read(0); r.Err != nil || r.At.Before(*d.lists) {
		t.Errorf("read at %s, listed at %s, %v", r.At, *d.lists, r.Err)
	}
}

func TestAGPUThatBreaksKeepsItsName(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a)}
	m, _ := busyMeter(&d, usageSymbols{processes: true, mps: true})
	if r := m.read(0); r.Err != nil {
		t.Fatal(r.Err)
	}
	d.listed = nvml.ERROR_GPU_IS_LOST
	r := m.read(0)
	if !errors.As(r.Err, new(lostError)) || r.GPU != uuidA || r.Memory.Known {
		t.Errorf("%+v", r)
	}
	d.listed = nvml.ERROR_NOT_SUPPORTED
	if r := m.read(0); r.Err != nil || !r.Processes.Known {
		t.Errorf("one list is not there, the other one is: %+v", r)
	}
}

// TestGraphicsListThatFails: a GPU whose list of graphics processes cannot be read is read all the same.
func TestGraphicsListThatFails(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a), compute: []nvml.ProcessInfo{process(7, 1)}}
	for _, ret := range []nvml.Return{nvml.SUCCESS, nvml.ERROR_UNKNOWN} {
		m, _ := busyMeter(&d, usageSymbols{processes: true, graphics: true})
		m.lib = busyLibrary{device: drawing{d, ret}}
		want := 1
		if ret == nvml.SUCCESS {
			want = 2
		}
		if r := m.read(0); r.Err != nil || len(r.Processes.Value) != want {
			t.Errorf("%v: %+v", ret, r)
		}
	}
}

// drawing has a graphics process, or fails to say so.
type drawing struct {
	busyDevice
	ret nvml.Return
}

func (d drawing) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	if d.ret != nvml.SUCCESS {
		return nil, d.ret
	}
	return []nvml.ProcessInfo{process(9, 1)}, d.ret
}

// TestActivityBeginsAnew: counters that began anew are unknown once, and then the mean since that reading.
func TestActivityBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := busyDevice{fakeDevice: v100s(uuidA, 0x1a)}
		m, _ := busyMeter(&d, usageSymbols{processes: true, gpm: true})
		*d.clock, *d.sm = 100, 5000
		m.read(0)
		time.Sleep(2 * time.Second)
		*d.clock, *d.sm = 102, 0
		if got := m.read(0).SMActivity; got.Known {
			t.Errorf("%+v", got)
		}
		at := time.Now()
		time.Sleep(time.Second)
		*d.clock, *d.sm = 103, 40
		if got := m.read(0).SMActivity; !got.Known || got.Value.Ratio != 0.4 || !got.Value.From.Equal(at) {
			t.Errorf("%+v", got)
		}
	})
}

func TestActivityIsTheMeanSinceTheLastReading(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a)}
	m, live := busyMeter(&d, usageSymbols{processes: true, gpm: true})
	step := func(seconds, percent float64) gpu.Measured[gpu.Activity] {
		*d.clock += seconds
		*d.sm += seconds * percent
		return m.read(0).SMActivity
	}
	if got := step(1, 90); got.Known {
		t.Errorf("there is no interval yet: %+v", got)
	}
	if got := step(1, 40); !got.Known || got.Value.Ratio != 0.4 || got.Value.To.Before(got.Value.From) {
		t.Errorf("%+v", got)
	}
	if got := step(0.05, 100); got.Known {
		t.Errorf("the counters have not moved on: %+v", got)
	}
	if got := step(0.15, 0); !got.Known || got.Value.Ratio < 0.2499 || got.Value.Ratio > 0.2501 {
		t.Errorf("50 ms of 100 %% and 150 ms of nothing are 25 %%: %+v", got)
	}
	*d.sm = 0
	if got := step(1, 50); got.Known {
		t.Errorf("counters that began anew: %+v", got)
	}
	if m.close(); *live != 0 {
		t.Errorf("%d GPM samples are not freed", *live)
	}
}

// The memory's bandwidth has a number of its own; a GPU without it keeps that of
// its multiprocessors.
func TestBandwidthBesideActivity(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a)}
	m, _ := busyMeter(&d, usageSymbols{processes: true, gpm: true})
	step := func() gpu.Reading {
		*d.clock++
		*d.sm += 60
		return m.read(0)
	}
	if r := step(); r.DRAMActivity.Known {
		t.Errorf("there is no interval yet: %+v", r.DRAMActivity)
	}
	if r := step(); !r.DRAMActivity.Known || r.DRAMActivity.Value.Ratio != 0.3 || r.DRAMActivity.Value.From != r.SMActivity.Value.From {
		t.Errorf("%+v", r.DRAMActivity)
	}
	d.noDRAM = true
	if r := step(); r.DRAMActivity.Known || !r.SMActivity.Known || r.SMActivity.Value.Ratio != 0.6 {
		t.Errorf("without the metric: %+v, %+v", r.DRAMActivity, r.SMActivity)
	}
}

func sampleOf(at uint64, percent uint32) nvml.Sample {
	s := nvml.Sample{TimeStamp: at}
	binary.NativeEndian.PutUint32(s.SampleValue[:], percent)
	return s
}

func TestMeanOfTheDriversSamples(t *testing.T) {
	const second = uint64(time.Second / time.Microsecond)
	ring := []nvml.Sample{sampleOf(7*second, 100), sampleOf(5*second, 80), sampleOf(6*second, 50), {}, {}}
	mean, newest := meanOf(ring, 5*second)
	if mean != gpu.Known(0.75) || newest != 7*second {
		t.Errorf("%+v, %d", mean, newest)
	}
	for name, c := range map[string]struct {
		samples []nvml.Sample
		since   uint64
	}{
		"the first reading":          {ring, 0},
		"nothing new":                {ring, 7 * second},
		"a gap":                      {[]nvml.Sample{sampleOf(9*second, 10)}, 7 * second},
		"no per cent":                {[]nvml.Sample{sampleOf(8*second, 0xffffffff)}, 7 * second},
		"an empty end of the buffer": {[]nvml.Sample{{}, {}}, 7 * second},
	} {
		if mean, newest := meanOf(c.samples, c.since); mean.Known || newest < c.since {
			t.Errorf("%s: %+v, %d", name, mean, newest)
		}
	}
}

// sampling is a GPU with the driver's samples of one kind.
type sampling struct {
	nvml.Device
	kind nvml.ValueType
	ret  nvml.Return
	rate uint32
}

func (d sampling) GetSamples(_ nvml.SamplingType, since uint64) (nvml.ValueType, []nvml.Sample, nvml.Return) {
	return d.kind, []nvml.Sample{sampleOf(since+1_000_000, 50)}, d.ret
}
func (d sampling) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return nvml.Utilization{Gpu: d.rate}, nvml.SUCCESS
}

// TestKernelTime: samples of an unknown kind are not read, an idle GPU needs none, and the first reading has no number.
func TestKernelTime(t *testing.T) {
	const whole, other, none = nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_DOUBLE, nvml.ERROR_NOT_FOUND
	for name, c := range map[string]struct {
		device sampling
		first  bool
		want   gpu.Measured[float64]
	}{
		"samples":               {sampling{kind: whole, rate: 9}, false, gpu.Known(0.5)},
		"another kind":          {sampling{kind: other, rate: 9}, false, gpu.Measured[float64]{}},
		"another kind, idle":    {sampling{kind: other}, false, gpu.Known(0.0)},
		"no samples":            {sampling{ret: none, rate: 9}, false, gpu.Measured[float64]{}},
		"no samples, idle":      {sampling{ret: none}, false, gpu.Known(0.0)},
		"the first, idle":       {sampling{ret: none}, true, gpu.Measured[float64]{}},
		"the first of a sample": {sampling{kind: whole, rate: 9}, true, gpu.Measured[float64]{}},
	} {
		g := &gpuMeter{sampled: 1, sampledAt: time.Now()}
		if c.first {
			g = &gpuMeter{}
		}
		got := (&meter{}).kernelTime(&deviceReader{device: c.device, step: func(string) {}}, g)
		if got.Known != c.want.Known || got.Value.Ratio != c.want.Value {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestSiftKeepsTheNewestTrueSamples(t *testing.T) {
	got, newest := sift([]nvml.ProcessUtilizationSample{
		{Pid: 9, TimeStamp: 120, SmUtil: 30}, {Pid: 9, TimeStamp: 130, SmUtil: 40}, {Pid: 5, TimeStamp: 125, SmUtil: 7},
		{Pid: 0, TimeStamp: 150, SmUtil: 1}, {Pid: 6, TimeStamp: 160, SmUtil: 0xffffffff}, {Pid: 7, TimeStamp: 100, SmUtil: 50},
		{Pid: 8, TimeStamp: 161, SmUtil: 101}, {Pid: 4, TimeStamp: 126, SmUtil: 100},
	}, 100)
	if d := cmp.Diff([]gpu.ProcessSample{{PID: 4, SM: 1}, {PID: 5, SM: 0.07}, {PID: 9, SM: 0.4}}, got); d != "" || newest != 130 {
		t.Errorf("%d (-want +got):\n%s", newest, d)
	}
}

// growing has more processes at every second call of the binding.
type growing struct {
	nvml.Device
	calls *int
}

func (g growing) GetProcessUtilization(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	*g.calls++
	small := make([]nvml.ProcessUtilizationSample, 1)
	switch n := *g.calls + 1; *g.calls {
	case 1:
		return small[:n], nvml.SUCCESS // what go-nvml does: beyond its own buffer
	case 2:
		return small, nvml.ERROR_INSUFFICIENT_SIZE
	}
	return small, nvml.SUCCESS
}

func TestAListThatGrowsIsReadAgain(t *testing.T) {
	calls := 0
	got, ret := processUtilization(growing{calls: &calls}, 0)
	if ret != nvml.SUCCESS || len(got) != 1 || calls != 3 {
		t.Errorf("%v, %v after %d calls", got, ret, calls)
	}
}

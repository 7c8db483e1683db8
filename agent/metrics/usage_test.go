package metrics

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

const (
	sliced   = gpu.UUID("GPU-00000000-0000-4000-8000-000000000004")
	half     = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")
	quarter  = gpu.UUID("MIG-00000000-0000-5000-8000-000000000001")
	gibibyte = gpu.Bytes(1 << 30)
)

func exactly(v float64) usage.Spread {
	return usage.Spread{Lower: gpu.Known(v), Estimate: gpu.Known(v), Upper: gpu.Known(v)}
}

func between(low, mid, high float64) usage.Spread {
	return usage.Spread{Lower: gpu.Known(low), Estimate: gpu.Known(mid), Upper: gpu.Known(high)}
}

func processes(owners ...usage.Owner) gpu.Measured[[]usage.Process] {
	var all []usage.Process
	for i, o := range owners {
		all = append(all, usage.Process{DeviceProcess: gpu.DeviceProcess{PID: 4000 + i}, Owner: o})
	}
	return gpu.Known(all)
}

// slot is one with a job that the site lets be named in full.
func slot(name string, d usage.Device, method usage.Method, n int, used gpu.Measured[gpu.Bytes]) Slot {
	s := Slot{Usage: usage.SlotUsage{Slot: usage.SlotKey{Slot: name, Starter: 300, Started: 5}, Device: d, Method: method, Share: 0.25, Processes: n, Memory: used}}
	if used.Known {
		s.Usage.Peak = gpu.Known(used.Value + gibibyte)
	}
	return s
}

func counters(name string, d usage.Device, sm, energy usage.Spread) usage.SlotCounters {
	return usage.SlotCounters{Slot: name, Device: d, Total: usage.SlotTotals{Allocated: 250, SM: sm, Likely: sm, Energy: energy}}
}

// fullUsage has each method: two MPS jobs beside a stranger, two time-slicing
// ones told by kernel time alone, an exclusive one, and two MIG devices of
// which one tells nothing.
func fullUsage() Usage {
	mps, slice, alone := usage.Device{GPU: shared}, usage.Device{GPU: closed}, usage.Device{GPU: whole}
	mig, blind := usage.Device{GPU: sliced, MIG: half}, usage.Device{GPU: sliced, MIG: quarter}
	memory := func(total, used gpu.Bytes) gpu.Measured[gpu.MemoryUse] {
		return gpu.Known(gpu.MemoryUse{Total: total * gibibyte, Used: used * gibibyte, Free: (total - used) * gibibyte})
	}
	first := slot("slot1_1", mps, usage.MethodMPS, 2, gpu.Known(4*gibibyte))
	first.Usage.Cap = 0.25
	first.Budget, first.Admitted = gpu.Known(6*gibibyte), time.Unix(1760000100, 0)
	first.Labels = JobLabels{ID: "17.0", VO: "atlas", User: "alice", Group: "group_atlas.alice"}
	return Usage{
		Sampled: time.Unix(1760000200, 0),
		Sources: []Source{
			{Name: "nvml", Up: true, Took: gpu.Known(12 * time.Millisecond), Succeeded: time.Unix(1760000200, 0), Failures: gpu.Known(uint64(2))},
			{Name: "dcgm", Took: gpu.Known(time.Second), Failures: gpu.Known(uint64(7))},
			{Name: "startd", Up: true, Succeeded: time.Unix(1760000150, 0)},
		},
		Devices: []usage.DeviceUsage{
			{Device: mps, Memory: memory(32, 9), Processes: processes(usage.OwnerSlot, usage.OwnerSlot, usage.OwnerServer, usage.OwnerNone, usage.OwnerEnded),
				Unowned: 2, Unlisted: gpu.Known(gibibyte), UnownedMemory: gpu.Known(gibibyte), Method: usage.MethodMPS, ActivitySource: "gpm", KernelTime: gpu.Known(1.0),
				Power: gpu.Known(231.5), BoundsExceeded: 1, MemoryBusy: gpu.Known(0.7), Contended: true,
				Board: gpu.Board{Temperature: gpu.Known(uint32(61)), PowerLimit: gpu.Known(uint32(250000)), SMClock: gpu.Known(uint32(1597)), MemoryClock: gpu.Known(uint32(1107)),
					Limits: gpu.Known(gpu.ClockLimits(0x05)), Corrected: gpu.Known(uint64(3)), Uncorrected: gpu.Known(uint64(0))},
				Total: usage.DeviceTotals{Sampled: 1000, SM: gpu.Known(700.0), Busy: gpu.Known(950.0), DRAM: gpu.Known(120.5), UnattributedSM: gpu.Known(20.0), Energy: gpu.Known(180000.5), UnattributedEnergy: gpu.Known(4000.0)}},
			{Device: slice, Processes: processes(usage.OwnerSlot, usage.OwnerSlot), Method: usage.MethodTimeslice, KernelTime: gpu.Known(0.5),
				Total: usage.DeviceTotals{Sampled: 1000, Busy: gpu.Known(500.0)}},
			{Device: alone, Memory: memory(32, 20), Method: usage.MethodExclusive, ActivitySource: "dcgm",
				Total: usage.DeviceTotals{Sampled: 990, SM: gpu.Known(891.0), UnattributedSM: gpu.Known(0.0)}},
			{Device: usage.Device{GPU: sliced}, MIGEnabled: true, Multiprocessors: 98, Memory: memory(40, 12),
				Total: usage.DeviceTotals{Sampled: 1000, SM: gpu.Known(300.0)}},
			{Device: mig, GPUInstance: 2, Multiprocessors: 42, Memory: memory(20, 10), Processes: processes(usage.OwnerSlot), UnownedMemory: gpu.Known(gpu.Bytes(0)),
				Method: usage.MethodMIG, ActivitySource: "gpm", Total: usage.DeviceTotals{Sampled: 1000, SM: gpu.Known(600.0), UnattributedSM: gpu.Known(0.0)}},
			{Device: blind, GPUInstance: 5, Method: usage.MethodNone},
		},
		Slots: []Slot{
			first,
			slot("slot1_2", mps, usage.MethodMPS, 1, gpu.Known(2*gibibyte)),
			slot("slot2_1", slice, usage.MethodTimeslice, 1, gpu.Measured[gpu.Bytes]{Value: gibibyte}),
			slot("slot2_2", slice, usage.MethodTimeslice, 0, gpu.Known(gpu.Bytes(0))),
			slot("slot3_1", alone, usage.MethodExclusive, 1, gpu.Known(20*gibibyte)),
			slot("slot4_1", mig, usage.MethodMIG, 1, gpu.Known(10*gibibyte)),
			slot("slot5_1", blind, usage.MethodNone, 0, gpu.Measured[gpu.Bytes]{}),
		},
		Unplanned: []gpu.UUID{sliced},
		Counters: []usage.SlotCounters{
			counters("slot1_1", mps, between(300, 450, 600), between(30000, 45000, 60000)),
			counters("slot1_2", mps, between(100, 230, 400), between(9000, 20000, 30000)),
			counters("slot2_1", slice, usage.Spread{Upper: gpu.Known(500.0)}, usage.Spread{}),
			counters("slot3_1", alone, exactly(891), exactly(150000)),
			counters("slot4_1", mig, exactly(257), usage.Spread{}),
			{Slot: "slot5_1", Device: blind, Total: usage.SlotTotals{Allocated: 250}},
		},
	}
}

// series counts the samples of each family.
func series(text string) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(text) {
		if name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]; name != "#" {
			out[name]++
		}
	}
	return out
}

// TestUnknownUsageIsAbsent: what was not measured has no series; what was
// measured as nothing is 0.
func TestUnknownUsageIsAbsent(t *testing.T) {
	got := scrape(t, newTest(full()))
	for _, absent := range []string{
		`slot_sm_seconds_total{gpu="` + string(closed),                              // kernel time gives an upper bound only
		`slot_sm_min_seconds_total{gpu="` + string(closed),                          //
		`slot_energy_joules_total{gpu="` + string(sliced),                           //
		`gpuslot_gpu_sm_seconds_total{gpu="` + string(closed),                       //
		`gpu_memory_used_bytes{gpu="` + string(closed),                              //
		`slot_memory_used_bytes{gpu="` + string(closed) + `",mig="",slot="slot2_1"`, // one process of it is not known
		`gpuslot_gpu_processes{gpu="` + string(whole),                               //
		`mig_memory_bytes{gpu="` + string(sliced) + `",mig="` + string(quarter),
		`mig_sm_ratio{gpu="` + string(sliced) + `",mig="` + string(quarter),
		`source_duration_seconds{source="startd"`,
		`source_last_success_timestamp_seconds{source="dcgm"`,
		`owner="ended"`,
		`gpu_temperature_celsius{gpu="` + string(whole),
		`gpu_dram_active_seconds_total{gpu="` + string(whole), // dcgm's activity has none
		`gpu_clock_limited{gpu="` + string(whole),
		`gpu_ecc_errors_total{gpu="` + string(whole),
		`slot_sm_limit_ratio{gpu="` + string(shared) + `",mig="",slot="slot1_2"`,
		`gpu_activity_info{gpu="` + string(sliced) + `",method="",mig=""`,
	} {
		if strings.Contains(got, absent) {
			t.Errorf("%s is claimed", absent)
		}
	}
	for _, present := range []string{
		`slot_memory_used_bytes{gpu="` + string(closed) + `",mig="",slot="slot2_2"} 0`,
		`slot_sm_max_seconds_total{gpu="` + string(closed) + `",mig="",slot="slot2_1"} 500`,
		`gpu_unowned_memory_bytes{gpu="` + string(sliced) + `",mig="` + string(half) + `"} 0`,
		`method="none",mig="` + string(quarter) + `",source="none"} 1`,
		`method="timeslice",mig="",source="kernel-time"} 1`,
	} {
		if !strings.Contains(got, present) {
			t.Errorf("%s is missing:\n%s", present, got)
		}
	}
}

// TestStaleUsageIsGone: with what the snapshot does not hold go its series, and
// nothing else.
func TestStaleUsageIsGone(t *testing.T) {
	s := full()
	before := series(scrape(t, newTest(s)))
	s.Usage.Devices, s.Usage.Slots, s.Usage.Counters = nil, nil, nil
	after := series(scrape(t, newTest(s)))
	for name := range before {
		usual := !strings.HasPrefix(name, "gpuslot_slot_") || name == "gpuslot_slot_mismatches_total"
		for _, u := range []string{"gpuslot_mig_", "gpuslot_gpu_sm_", "gpuslot_gpu_busy", "gpuslot_gpu_energy", "gpuslot_gpu_una", "gpuslot_gpu_uno", "gpuslot_gpu_unl", "gpuslot_gpu_power", "gpuslot_gpu_memory_used", "gpuslot_gpu_memory_contention", "gpuslot_gpu_proc", "gpuslot_gpu_act", "gpuslot_gpu_sampled", "gpuslot_gpu_bounds", "gpuslot_gpu_temperature", "gpuslot_gpu_clock", "gpuslot_gpu_ecc", "gpuslot_gpu_dram"} {
			usual = usual && !strings.HasPrefix(name, u)
		}
		usual = usual || name == "gpuslot_mig_layout_matches_config" // the loop's, not the samples'
		if usual && after[name] != before[name] || !usual && after[name] != 0 {
			t.Errorf("%s: %d series before, %d after", name, before[name], after[name])
		}
	}
	if maps.Equal(before, after) {
		t.Error("nothing went")
	}
}

// TestJobIsNamedOnce: no series but slot_info's has a word of the job's.
func TestJobIsNamedOnce(t *testing.T) {
	told := 0
	for line := range strings.Lines(scrape(t, newTest(full()))) {
		for _, word := range []string{"17.0", "atlas", "alice"} {
			if !strings.Contains(line, word) {
				continue
			}
			if told++; !strings.HasPrefix(line, "gpuslot_slot_info{") {
				t.Errorf("%q tells of the job", line)
			}
		}
	}
	if told == 0 {
		t.Error("slot_info does not tell of the job")
	}
}

// TestConsistency: what is gathered beside the registry is what a registry would let pass: no
// series comes twice, no family has two types.
func TestConsistency(t *testing.T) {
	for name, s := range map[string]moment{"full": full(), "busy": busy(16, 48), "empty": {}} {
		if _, err := (prometheus.Gatherers{newTest(s).Gatherer()}).Gather(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	twice := full()
	twice.Usage.Slots = append(twice.Usage.Slots, twice.Usage.Slots[0])
	if _, err := (prometheus.Gatherers{newTest(twice).Gatherer()}).Gather(); err == nil {
		t.Error("a slot that is there twice goes unnoticed, so this test shows nothing")
	}
}

// TestStrangeNames: whatever a job calls itself, the exposition stays one.
func TestStrangeNames(t *testing.T) {
	s := full()
	s.Usage.Slots[0].Labels = JobLabels{ID: "1\xff", User: "a\"b\\c\nd{} 1"}
	got := scrape(t, newTest(s))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, m := range families["gpuslot_slot_info"].GetMetric() {
		of := map[string]string{}
		for _, l := range m.GetLabel() {
			of[l.GetName()] = l.GetValue()
		}
		if of["slot"] == s.Usage.Slots[0].Usage.Slot.Slot {
			labels = of
		}
	}
	if labels["user"] != s.Usage.Slots[0].Labels.User || labels["job_id"] != "1\uFFFD" {
		t.Errorf("they become %q", labels)
	}
}

// TestScrapeIsLinear: twice the slots cost at most about twice as much memory.
func TestScrapeIsLinear(t *testing.T) {
	cost := func(slots int) float64 {
		g := newTest(busy(16, slots)).Gatherer()
		return testing.AllocsPerRun(3, func() {
			if _, err := g.Gather(); err != nil {
				t.Error(err)
			}
		})
	}
	none, some, twice := cost(0), cost(24), cost(48)
	if more := (twice - some) / (some - none); more > 1.2 {
		t.Errorf("allocations: %v without slots, %v with 24 on each GPU, %v with 48: %v", none, some, twice, more)
	}
	if perSlot := (twice - none) / (16 * 48); perSlot > 16 { // of some 17 series, which share their labels
		t.Errorf("%.1f allocations for each slot", perSlot)
	}
}

package metrics

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

const migUUID = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")

func uuidOf(n int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n)) }

// one is a job on the first GPU.
var one = jobs.Job{
	Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}, GPU: uuidOf(0), Budget: 4096, ID: "7.0",
}

// usageAt is what a sample and the job table say at a time.
func usageAt(snap *usage.Snapshot, running []jobs.Job, now time.Time) *Usage {
	return usageOf(&status.Snapshot{
		Node: status.Node{Config: config.Default()}, At: now, Usage: snap, Running: running, Startds: &startd.Said{},
	})
}

// sampledAt is a snapshot of one GPU that was read at a time, with a slot.
func sampledAt(at time.Time) *usage.Snapshot {
	d := usage.Device{GPU: uuidOf(0)}
	return &usage.Snapshot{
		At:       at,
		Devices:  []usage.DeviceUsage{{Device: d, At: at, Method: usage.MethodExclusive}},
		Slots:    []usage.SlotUsage{{Slot: rules.SlotKey(one.Starter), Device: d, Method: usage.MethodExclusive, Processes: 1, Memory: gpu.Known(gpu.Bytes(7))}},
		Counters: []usage.SlotCounters{{Slot: "slot1_1", Device: d}},
		Sources:  []usage.Health{{Source: "nvml", Took: time.Millisecond, Succeeded: at, Failures: 3}},
	}
}

// TestStaleSamplesAreNotShown: three intervals, whatever the sampler does; the
// job table stays.
func TestStaleSamplesAreNotShown(t *testing.T) {
	at := time.Unix(1000, 0)
	running := []jobs.Job{one}
	fresh := usageAt(sampledAt(at), running, at.Add(3*time.Second))
	if len(fresh.Devices) != 1 || len(fresh.Counters) != 1 || len(fresh.Slots) != 1 || !fresh.Slots[0].Usage.Memory.Known || !fresh.Sources[0].Up {
		t.Errorf("after three intervals: %+v", fresh)
	}
	stale := usageAt(sampledAt(at), running, at.Add(3*time.Second+1))
	want := &Usage{
		Sampled: at,
		Sources: []Source{{Name: "nvml", Took: gpu.Known(time.Millisecond), Succeeded: at, Failures: gpu.Known(uint64(3))}},
		Slots: []Slot{{
			Usage:  usage.SlotUsage{Slot: rules.SlotKey(running[0].Starter), Device: usage.Device{GPU: uuidOf(0)}, Method: usage.MethodNone},
			Budget: gpu.Known(gpu.Bytes(4096 << 20)), Labels: JobLabels{ID: "7.0"},
		}},
	}
	if d := cmp.Diff(want, stale); d != "" {
		t.Errorf("later (-want +got):\n%s", d)
	}
	if never := usageAt(&usage.Snapshot{}, nil, at); len(never.Sources) != 0 || !never.Sampled.IsZero() {
		t.Errorf("before the first round: %+v", never)
	}
}

// TestTwoJobsOnOneSlot: the one that goes and the one that comes are one slot,
// with what both hold and the later one's name.
func TestTwoJobsOnOneSlot(t *testing.T) {
	at := time.Unix(1000, 0)
	snap := sampledAt(at)
	before := jobs.Job{Starter: one.Starter, GPU: uuidOf(0), Budget: 1, ID: "7.0", Since: at}
	now := before
	now.Starter.PID, now.Starter.Started, now.ID, now.Budget, now.Since = 200, 2, "8.0", 2, at.Add(time.Second)
	snap.Slots = append(snap.Slots, usage.SlotUsage{Slot: rules.SlotKey(now.Starter), Device: usage.Device{GPU: uuidOf(0)}, Processes: 2, Memory: gpu.Known(gpu.Bytes(5)), Peak: gpu.Known(gpu.Bytes(6))})
	for name, running := range map[string][]jobs.Job{"in order": {before, now}, "out of order": {now, before}} {
		got := usageAt(snap, running, at).Slots
		if len(got) != 1 {
			t.Fatalf("%s: %d slots", name, len(got))
		}
		s := got[0]
		if s.Usage.Processes != 3 || s.Usage.Memory != gpu.Known(gpu.Bytes(12)) || s.Usage.Peak != gpu.Known(gpu.Bytes(6)) || s.Labels.ID != "8.0" || s.Budget.Value != 2<<20 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	snap.Slots[0].Memory = gpu.Measured[gpu.Bytes]{}
	if s := usageAt(snap, nil, at).Slots[0]; s.Usage.Memory.Known {
		t.Errorf("an unknown part makes a known sum: %+v", s.Usage)
	}
}

// TestNoSlotTwice: whatever meets on a slot, a scrape has it once per device,
// or Prometheus would refuse all of it.
func TestNoSlotTwice(t *testing.T) {
	at := time.Unix(1000, 0)
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]string{"slot1_1", "slot1_2", "slot1_10"})
		gpus := rapid.SampledFrom([]gpu.UUID{uuidOf(0), uuidOf(1), migUUID})
		ages := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute})
		snap := &usage.Snapshot{At: at}
		for _, d := range []usage.Device{{GPU: uuidOf(0)}, {GPU: uuidOf(1)}, {GPU: uuidOf(1), MIG: migUUID}} {
			if rapid.Bool().Draw(t, "there") {
				snap.Devices = append(snap.Devices, usage.DeviceUsage{Device: d, At: at.Add(-ages.Draw(t, "age"))})
			}
			for range rapid.IntRange(0, 4).Draw(t, "jobs") {
				k := usage.SlotKey{Slot: slots.Draw(t, "slot"), Starter: rapid.IntRange(0, 9).Draw(t, "starter")}
				snap.Slots = append(snap.Slots, usage.SlotUsage{Slot: k, Device: d})
			}
		}
		var running []jobs.Job
		for i := range rapid.IntRange(0, 6).Draw(t, "running") {
			running = append(running, jobs.Job{Starter: starter.Starter{ID: process.ID{PID: i}, Slot: slots.Draw(t, "slot")}, GPU: gpus.Draw(t, "gpu"), Since: at.Add(ages.Draw(t, "since")), ID: "1.0"})
		}
		seen := map[nameOn]bool{}
		for _, s := range usageAt(snap, running, at).Slots {
			n := nameOn{s.Usage.Slot.Slot, s.Usage.Device}
			if seen[n] {
				t.Fatalf("%+v is there twice", n)
			}
			seen[n] = true
		}
		for _, r := range running {
			if !seen[nameOn{r.Starter.Slot, snap.DeviceOf(r.GPU)}] {
				t.Fatalf("%+v is missing", r)
			}
		}
	})
}

// TestSlotOnMIGDevice: what is booked by the MIG device's UUID is found where
// it was sampled.
func TestSlotOnMIGDevice(t *testing.T) {
	at := time.Unix(1000, 0)
	snap := sampledAt(at)
	d := usage.Device{GPU: uuidOf(0), MIG: migUUID}
	snap.Devices = append(snap.Devices, usage.DeviceUsage{Device: d, At: at})
	snap.Slots[0].Device = d
	r := one
	r.GPU = migUUID
	if got := usageAt(snap, []jobs.Job{r}, at).Slots; len(got) != 1 || got[0].Usage.Device != d || got[0].Labels.ID != "7.0" {
		t.Errorf("%+v", got)
	}
}

// TestFaultsBeginAtZero: what an alert waits for is there before it happens.
func TestFaultsBeginAtZero(t *testing.T) {
	gpus := []plan.GPU{{UUID: uuidOf(0)}}
	counted := []faults.Counted{{GPU: uuidOf(0), Reason: "xid-79", Class: gpu.XIDBroken, Count: 2}, {GPU: uuidOf(1), Reason: "lost", Class: gpu.XIDNeedsReset, Count: 1}}
	got := map[string]int{}
	for _, f := range faultsOf(gpus, counted) {
		if _, twice := got[string(f.GPU)+f.Reason]; twice || f.Class == "" {
			t.Errorf("%+v", f)
		}
		got[string(f.GPU)+f.Reason] = f.Count
	}
	want := map[string]int{string(uuidOf(1)) + "lost": 1}
	for _, n := range criticalXIDs {
		want[string(uuidOf(0))+"xid-"+strconv.Itoa(n)] = 0
	}
	want[string(uuidOf(0))+"xid-79"] = 2
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
}

func TestWhatDaemonsTell(t *testing.T) {
	server := func(percent string, clients ...int) mps.Server {
		return mps.Server{Status: mps.Active, ThreadPercentage: percent, Clients: clients}
	}
	for name, c := range map[string]struct {
		servers []mps.Server
		want    gpu.Measured[float64]
	}{
		"no server":                 {nil, gpu.Known(0.0)},
		"two":                       {[]mps.Server{server("50.0", 11, 12), server("50.0", 13)}, gpu.Known(3.0)},
		"one that does not answer":  {[]mps.Server{server("50.0", 11), server("")}, gpu.Measured[float64]{}},
		"a server without a client": {[]mps.Server{server("50.0")}, gpu.Known(0.0)},
	} {
		if got := clientsOf(mps.Checked{States: c.servers}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for text, want := range map[string]float64{"25.0": 0.25, "100.0": 1, "0.1": 0.001} {
		if got := threadRatio(mps.Checked{ThreadPercentage: text}); !got.Known || strconv.FormatFloat(got.Value, 'g', 4, 64) != strconv.FormatFloat(want, 'g', 4, 64) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if got := threadRatio(mps.Checked{}); got.Known {
		t.Errorf("nothing was read back: %+v", got)
	}
}

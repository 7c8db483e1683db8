package keepers

import (
	"fmt"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// answers gives one look at each job and one outside of jobs.
type answers struct {
	job     Held
	outside deep.Looking[Held]
}

func (a *answers) OfJob(starter.Starter, []process.ID) deep.Looking[Held] { return deep.Known(a.job) }

func (a *answers) Opens(int) func(gpu.UUID) bool { return nil }

func (a *answers) OutsideJobs([]process.ID) deep.Looking[Held] { return a.outside }

// keeps is a Watch of a device that has more unlisted memory than before.
func keeps(a *answers) (w *Watch, g GPU, sample func()) {
	g = GPU{UUID: "GPU-0", Device: usage.Device{GPU: "GPU-0"}}
	w = New(a, func(process.ID) bool { return true })
	snap := func(more gpu.Bytes) *usage.Snapshot {
		return &usage.Snapshot{Devices: []usage.DeviceUsage{{Device: g.Device, Unlisted: gpu.Known(more)}}}
	}
	w.Look(snap(0), []GPU{g}, nil, 0)
	return w, g, func() { w.Look(snap(10<<30), []GPU{g}, nil, 0) }
}

// TestSlowLook: the answer of a slow look, which package deep gives again for a while, counts once: for a keeper as well
// as for none.
func TestSlowLook(t *testing.T) {
	a := &answers{outside: deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}, Memory: true}}})}
	w, g, sample := keeps(a)
	for range 10 {
		sample()
		if found := w.Outside(g); len(found) > 0 {
			t.Fatalf("one look proves %v", found)
		}
	}
	for range provenAfter {
		a.outside = deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}, Memory: true}}})
		sample()
	}
	if found := w.Outside(g); len(found) != 1 {
		t.Errorf("%d looks prove %v", provenAfter+1, found)
	}
	a.outside = deep.Known(Held{})
	for range 10 {
		if sample(); !w.May(g) {
			t.Fatal("one look without a keeper is enough")
		}
	}
	for range clearAfter - 1 {
		a.outside = deep.Known(Held{})
		sample()
	}
	if w.May(g) {
		t.Errorf("%d looks without a keeper are not enough", clearAfter)
	}
}

// TestOutsideInARow: a node of the memory manager must be seen in three looks in a row. Other nodes count only while
// NVML lists an ended process.
func TestOutsideInARow(t *testing.T) {
	for _, c := range []struct {
		looks        string // "m": a node of the memory manager is seen, "n": another one, ".": none
		kept, listed bool
	}{
		{looks: "mmm", listed: true},
		{looks: "mmmm", listed: true, kept: true},
		{looks: "mmmnmm", listed: true},
		{looks: "mmm.mm"},
		{looks: "nnmmm", listed: true, kept: true},
		{looks: "nnnnnn", listed: true},
		{looks: "nn.nn"},
		{looks: "nn"},
	} {
		for _, ended := range []bool{false, true} {
			a := &answers{}
			w, g, _ := keeps(a)
			snap := &usage.Snapshot{Devices: []usage.DeviceUsage{{Device: g.Device, Unlisted: gpu.Known(gpu.Bytes(10 << 30))}}}
			if ended {
				snap.Devices[0].Unlisted = gpu.Known(gpu.Bytes(0))
				snap.Devices[0].Processes = gpu.Known([]usage.Process{{Owner: usage.OwnerEnded, Stays: true}})
			}
			for _, seen := range c.looks {
				held := Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}, Memory: seen == 'm'}}}
				if seen == '.' {
					held = Held{}
				}
				a.outside = deep.Known(held)
				w.Look(snap, []GPU{g}, nil, 0)
			}
			want := c.kept
			if ended {
				want = c.listed
			}
			if found := len(w.Outside(g)) == 1; found != want {
				t.Errorf("%s, ended %t: found %t", c.looks, ended, found)
			}
		}
	}
}

// TestOutsideBesideAnotherDevice: what was seen while jobs kept memory of one device within their budgets shows nothing
// about another one.
func TestOutsideBesideAnotherDevice(t *testing.T) {
	a := &answers{job: Held{Holders: []Holder{{ID: process.ID{PID: 111, Started: 1}, Own: true, Bare: true}}}}
	w := New(a, func(process.ID) bool { return true })
	var gpus []GPU
	var running []jobs.Job
	snap := &usage.Snapshot{}
	for i := range 2 {
		u := gpu.UUID(fmt.Sprint("GPU-", i))
		gpus = append(gpus, GPU{UUID: u, Device: usage.Device{GPU: u}, Alone: i == 1})
		running = append(running, jobs.Job{Starter: starter.Starter{Slot: fmt.Sprint("slot1_", i+1)}, GPU: u, Budget: 4096})
		snap.Devices = append(snap.Devices, usage.DeviceUsage{Device: gpus[i].Device, Unlisted: gpu.Known(gpu.Bytes(0))})
	}
	sample := func() (all []process.ID) {
		a.outside = deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}, Memory: true}}})
		w.Look(snap, gpus, running, 0)
		w.Count([]rules.Job{{Job: running[0], Memory: gpu.Known(gpu.Bytes(1000 << 20))}}, config.Budgets{})
		for _, g := range gpus {
			all = append(all, w.Outside(g)...)
		}
		return all
	}
	sample()
	for i := range gpus {
		snap.Devices[i].Unlisted = gpu.Known(gpu.Bytes(3352 << 20)) // the first job has 1000 and may have 4352
		for range 10 {
			if found := sample(); len(found) > 0 {
				t.Errorf("memory within the budget on %s: found %v", gpus[i].UUID, found)
			}
		}
	}
	snap.Devices[0].Unlisted = gpu.Known(gpu.Bytes(3353 << 20))
	var found []process.ID
	for range provenAfter + 1 {
		found = append(found, sample()...)
	}
	if len(found) != 1 {
		t.Errorf("more than the first job may have: found %v, want one after %d looks", found, provenAfter+1)
	}
}

// TestEndedBesideAnotherDevice: nor does what was seen before NVML listed an ended process.
func TestEndedBesideAnotherDevice(t *testing.T) {
	a := &answers{}
	w, g, _ := keeps(a)
	other := GPU{UUID: "GPU-other", Device: usage.Device{GPU: "GPU-other"}}
	snap := &usage.Snapshot{Devices: []usage.DeviceUsage{
		{Device: g.Device, Unlisted: gpu.Known(gpu.Bytes(0))}, {Device: other.Device, Unlisted: gpu.Known(gpu.Bytes(0))},
	}}
	sample := func() int {
		a.outside = deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}}}})
		w.Look(snap, []GPU{g, other}, nil, 0)
		return len(w.Outside(g)) + len(w.Outside(other))
	}
	sample()
	snap.Devices[0].Unlisted = gpu.Known(gpu.Bytes(10 << 30))
	for range clearAfter - 1 {
		if sample() > 0 {
			t.Error("a program that has no node of the memory manager open was found")
		}
	}
	snap.Devices[1].Processes = gpu.Known([]usage.Process{{Owner: usage.OwnerEnded, Stays: true}})
	for range provenAfter - 1 {
		if sample() > 0 {
			t.Errorf("found after fewer than %d looks", provenAfter)
		}
	}
	if sample() != 1 {
		t.Errorf("not found after %d looks", provenAfter)
	}
}

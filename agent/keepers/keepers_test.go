package keepers

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// answers gives one look outside of jobs.
type answers struct{ outside deep.Looking[Held] }

func (*answers) OfJob(starter.Starter, []process.ID) deep.Looking[Held] { return deep.Known(Held{}) }

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
	for range provenAfter - 1 {
		a.outside = deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}, Memory: true}}})
		sample()
	}
	if found := w.Outside(g); len(found) != 1 {
		t.Errorf("%d looks prove %v", provenAfter, found)
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

package keepers

import (
	"slices"
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
	a := &answers{outside: deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}}}})}
	w, g, sample := keeps(a)
	for range 10 {
		sample()
		if found, _ := w.Outside(g); len(found) > 0 {
			t.Fatalf("one look proves %v", found)
		}
	}
	for range provenAfter - 1 {
		a.outside = deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: 301, Started: 1}}}})
		sample()
	}
	if found, _ := w.Outside(g); len(found) != 1 {
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

// TestFollow: processes that follow each other in a place, also with looks between them that show none, make the place
// due, each time once. One that stays does not.
func TestFollow(t *testing.T) {
	a := &answers{}
	w, g, sample := keeps(a)
	place := process.Place{Cgroup: "/user.slice/user-1001.slice"}
	look := func(pid int, in process.Place) []process.Place {
		a.outside = deep.Known(Held{Holders: []Holder{{ID: process.ID{PID: pid, Started: 1}, Place: in}}})
		sample()
		_, due := w.Outside(g)
		return due
	}
	for range 10 {
		if due := look(301, place); len(due) > 0 {
			t.Fatalf("one that stays makes %v due", due)
		}
	}
	for i := range 10 {
		if due := look(400+i, process.Place{}); len(due) > 0 {
			t.Fatalf("those in no place make %v due", due)
		}
	}
	if due := look(501, place); !slices.Equal(due, []process.Place{place}) {
		t.Errorf("after three: %v", due)
	}
	sample() // the same look
	if _, due := w.Outside(g); len(due) > 0 {
		t.Errorf("it is due again: %v", due)
	}
}

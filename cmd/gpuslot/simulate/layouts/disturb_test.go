package layouts

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// rude takes every instance away after a minute.
type rude struct{ still }

func (rude) Name() string { return "rude" }

func (r rude) begin(n Node, c *mig.Catalogue) (driver, []gpu.Layout, error) {
	_, first, err := Layout{Text: "3g.20gb*2"}.begin(n, c)
	return r, first, err
}

func (rude) decide(w *world) error {
	if w.now == time.Minute && w.result.Changes == 0 {
		w.change(0, gpu.Layout{}, 0)
	}
	return nil
}

func (rude) wake(w *world) (time.Duration, bool) { return time.Minute, w.now < time.Minute }

// A policy that takes an instance from a job is found out.
func TestDisturbedAreCounted(t *testing.T) {
	chip, err := mig.Model("A100-40", 0)
	if err != nil {
		t.Fatal(err)
	}
	n := Node{Chip: chip, GPUs: 1}
	trace := Trace{{Duration: time.Hour, Profile: "3g.20gb"}, {Duration: time.Second, Profile: "3g.20gb"}}
	r, err := Run(n, trace, rude{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Disturbed != 1 || r.Destroyed != 2 {
		t.Errorf("%d disturbed, %d instances destroyed", r.Disturbed, r.Destroyed)
	}
}

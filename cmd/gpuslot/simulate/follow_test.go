package simulate

import (
	"context"
	"testing"
	"time"
)

// followPool is a node with one A100 whose layout follows what waits.
func followPool(t *testing.T) (Pool, Policy) {
	t.Helper()
	g, err := NewGroup("g", 1, 1, "A100-40", 128, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	p := Pool{Groups: []Group{g}, Matching: DefaultMatching(), Model: DefaultModel()}
	policy, err := DynamicMIG(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, policy
}

// TestFollows: a job that no instance serves gets one made, when those that are there
// have dwelt for ten minutes, and is matched in the next cycle; a static layout lets it wait for ever, which ends the run.
func TestFollows(t *testing.T) {
	p, policy := followPool(t)
	job := Job{GPUs: 1, CPUs: 1, VRAM: 15000, Work: Work{Seconds: 100}}
	es := events(t, p, policy, job)
	if len(es) != 2 || es[0].Place.Device != "3g.20gb@4" || es[0].At != 12*time.Minute {
		t.Errorf("%+v", es)
	}
	policy.Config = "[sharing]\nmode = \"mig\"\nmig_layout = [\"1g.5gb*7\", \"3g.20gb*2\"]\n"
	r, err := Run(context.Background(), p, policy, List(job), Options{})
	if err != nil || r.Started != 0 || r.Refused != 0 || r.Jobs != 1 {
		t.Errorf("%v %+v", err, r)
	}
}

// TestReserved: instances that are kept free for a large job take no next job by their
// claims, however long those live.
func TestReserved(t *testing.T) {
	p, policy := followPool(t)
	p.Matching.Worklife = 300 * 24 * time.Hour
	small := Job{Owner: "small", GPUs: 1, CPUs: 1, VRAM: 4000, Work: Work{Seconds: 1800}}
	var jobs []Job
	for range 700 { // 100 rounds of half an hour
		jobs = append(jobs, small)
	}
	jobs = append(jobs, Job{Owner: "large", Arrival: time.Minute, GPUs: 1, CPUs: 1, VRAM: 30000, Work: Work{Seconds: 1800}})
	if s := at(events(t, p, policy, jobs...), Start, 700); s <= 0 || s > 10*time.Hour {
		t.Errorf("the large job begins at %s", s)
	}
}

// TestFollowsTheHost: a small job with more CPUs than a small instance's slot gets a
// larger instance made; one with more than any slot makes none.
func TestFollowsTheHost(t *testing.T) {
	p, policy := followPool(t)
	forty := Job{GPUs: 1, CPUs: 40, VRAM: 4000, Work: Work{Seconds: 100}}
	es := events(t, p, policy, forty)
	if len(es) != 2 || es[0].Place.Device != "3g.20gb@4" || es[0].At != 12*time.Minute {
		t.Errorf("%+v", es)
	}
	all := forty
	all.CPUs = 128
	r, err := Run(context.Background(), p, policy, List(all), Options{})
	if err != nil || r.Started != 0 || r.Changes != 0 {
		t.Errorf("%v %+v", err, r)
	}
}

// TestHopeless: work that nothing will serve does not keep looks coming for ever.
func TestHopeless(t *testing.T) {
	f, w := &follower{patience: 100}, &world{}
	for _, c := range []struct {
		now            float64
		waiting, ended int
		want           bool
	}{
		{0, 1, 0, false}, {100, 1, 0, false}, {101, 1, 0, true}, {101, 0, 0, false},
		{102, 1, 1, false}, // something ended
		{202, 1, 1, false}, {203, 1, 1, true},
	} {
		w.now, w.queue.n, w.sums.ended = c.now, c.waiting, c.ended
		if got := f.hopeless(w); got != c.want {
			t.Errorf("at %v with %d waiting, %d ended: %v", c.now, c.waiting, c.ended, got)
		}
	}
}

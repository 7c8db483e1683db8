package waiting

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// points are access points that say what the test wants, by the constraint.
type points struct {
	mu    sync.Mutex
	by    map[string][]condor.WaitingJob
	err   error
	asked int
}

func (p *points) Waiting(_ context.Context, constraint string, _ int) ([]condor.WaitingJob, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return append([]condor.WaitingJob(nil), p.by[constraint]...), p.err
}

func (p *points) say(by map[string][]condor.WaitingJob, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by, p.err = by, err
}

var all = condor.Idle{Whole: "whole", Shared: "shared", Large: "large"}

// TestAsk: of several jobs the one that has waited longest counts.
func TestAsk(t *testing.T) {
	q, p := NewQueue(slog.New(slog.DiscardHandler)), &points{}
	p.say(map[string][]condor.WaitingJob{
		"whole":  {{GPUs: 1, Waited: time.Minute}, {GPUs: 2, Waited: time.Hour}},
		"shared": {{GPUs: 1}},
		"large":  {{VRAM: 20000, Waited: time.Minute}, {VRAM: 30000, Waited: time.Hour}},
	}, nil)
	q.Ask(t.Context(), p, all)
	now := time.Now()
	if d := q.Elastic(now); d != (elastic.Demand{Known: true, Whole: 2, Shared: true}) {
		t.Errorf("%+v", d)
	}
	if n := q.Large(now); n != 30000 {
		t.Errorf("large: %s", n)
	}
	p.say(nil, nil)
	if q.Ask(t.Context(), p, all); q.Large(now) != 0 || q.Elastic(now) != (elastic.Demand{Known: true}) {
		t.Errorf("nothing waits any more: %s, %+v", q.Large(now), q.Elastic(now))
	}
}

// What the queue does not tell grows old and is then not known. The log says it once.
func TestQueueGrowsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		q, p := NewQueue(slog.New(slog.NewTextHandler(&said, nil))), &points{}
		if q.Elastic(time.Now()).Known || q.Large(time.Now()) != 0 {
			t.Error("known before anybody was asked")
		}
		p.say(map[string][]condor.WaitingJob{"whole": {{GPUs: 2}}, "large": {{VRAM: 9}}}, nil)
		q.Ask(t.Context(), p, all)
		if d := q.Elastic(time.Now()); d != (elastic.Demand{Known: true, Whole: 2}) {
			t.Errorf("%+v", d)
		}
		p.say(nil, errors.New("no"))
		time.Sleep(stale / 2)
		q.Ask(t.Context(), p, all)
		if d := q.Elastic(time.Now()); !d.Known {
			t.Error("one failure forgets all")
		}
		time.Sleep(stale)
		q.Ask(t.Context(), p, all)
		if q.Elastic(time.Now()).Known || q.Large(time.Now()) != 0 || q.Err() == nil {
			t.Error("an old answer still counts")
		}
		if n := strings.Count(said.String(), "do not tell"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		p.say(nil, nil)
		if q.Ask(t.Context(), p, all); q.Err() != nil || !q.Elastic(time.Now()).Known {
			t.Error("the next answer does not count")
		}
	})
}

// TestRun: it asks where that makes a difference, beside those who read the answers.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, p := NewQueue(slog.New(slog.DiscardHandler)), &points{}
		p.say(map[string][]condor.WaitingJob{"large": {{VRAM: 20000}}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		want := condor.Idle{}
		var all sync.WaitGroup
		all.Go(func() {
			q.Run(ctx, p, func() (condor.Idle, time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				return want, time.Second
			})
		})
		all.Go(func() {
			for ctx.Err() == nil {
				q.Reserve([]Room{{"a", true, 30000, 1}}, time.Now())
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(time.Minute)
		if p.asked != 0 {
			t.Errorf("asked %d times for nothing", p.asked)
		}
		mu.Lock()
		want.Large = "large"
		mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if u, least, _ := q.Reserve([]Room{{"a", true, 30000, 1}}, time.Now()); u != "a" || least != 20000 {
			t.Errorf("%q for %s", u, least)
		}
		cancel()
		all.Wait()
	})
}

// TestReserve: it is new once, and ends with the request.
func TestReserve(t *testing.T) {
	q, p := NewQueue(slog.New(slog.DiscardHandler)), &points{}
	rooms, now := []Room{{"a", true, 30000, 100}, {"b", true, 30000, 9000}}, time.Now()
	if u, _, fresh := q.Reserve(rooms, now); u != "" || fresh {
		t.Errorf("before anything waits: %q, %t", u, fresh)
	}
	p.say(map[string][]condor.WaitingJob{"large": {{VRAM: 20000}}}, nil)
	q.Ask(t.Context(), p, all)
	for i, want := range []bool{true, false} {
		if u, least, fresh := q.Reserve(rooms, now); u != "b" || least != 20000 || fresh != want {
			t.Errorf("%d: %q for %s, new %t", i, u, least, fresh)
		}
	}
	p.say(nil, nil)
	q.Ask(t.Context(), p, all)
	if u, _, fresh := q.Reserve(rooms, now); u != "" || fresh {
		t.Errorf("when it runs: %q, %t", u, fresh)
	}
}

func TestChoose(t *testing.T) {
	rooms := []Room{
		{"a", true, 30000, 100}, {"b", true, 30000, 9000}, {"small", true, 16000, 16000}, {"closed", false, 30000, 30000},
	}
	for _, c := range []struct {
		name string
		want gpu.MiB
		last gpu.UUID
		got  gpu.UUID
	}{
		{"that with most room", 20000, "", "b"},
		{"it stays with the one that it chose", 20000, "a", "a"},
		{"unless that is closed", 20000, "closed", "b"},
		{"none where nothing waits", 0, "a", ""},
		{"none where it never fits", 40000, "", ""},
		{"a smaller one fits more", 12000, "", "small"},
	} {
		if got := choose(c.want, c.last, rooms); got != c.got {
			t.Errorf("%s: %q, want %q", c.name, got, c.got)
		}
	}
}

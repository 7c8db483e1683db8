package waiting

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// pool says what the test wants.
type pool struct {
	demand condor.Demand
	err    error
}

func (p *pool) Demand(context.Context, time.Time) (condor.Demand, error) { return p.demand, p.err }

// counted is a demand that was counted now.
func counted(waiting ...condor.Waiting) condor.Demand {
	d := condor.Demand{At: time.Now(), Waiting: waiting}
	for i := range d.Waiting {
		d.Waiting[i].At = d.At
		d.Waiting[i].Jobs = 1
	}
	return d
}

// pair is a node with two elastic GPUs, which counts jobs that have waited for a minute,
// and large ones that have waited for twenty.
func pair() Interest {
	n := condor.Node{WithoutRequest: condor.WithoutRequestRefuse}
	for _, u := range []gpu.UUID{"GPU-a", "GPU-b"} {
		n.Devices = append(n.Devices, condor.Device{
			UUID: u, Memory: 32768, Shared: true, Elastic: true, Pool: 32256, LargestRequest: 32256,
			Share: condor.Share{CPUs: 8, Memory: 32768},
		})
	}
	return Interest{
		Node: n, Rules: elastic.Rules{Max: 2, Patience: time.Minute}, Large: 16384, LargeAfter: 20 * time.Minute,
	}
}

func quiet() *Queue { return NewQueue(slog.New(slog.DiscardHandler)) }

// TestAsk: of several jobs the one that has waited longest counts, of those that the node
// could serve and that have waited for long enough.
func TestAsk(t *testing.T) {
	q, now := quiet(), time.Now()
	d := counted(
		condor.Waiting{GPUs: 1, VRAM: 32700, Waits: 60}, condor.Waiting{GPUs: 2, Waits: 3600},
		condor.Waiting{GPUs: 8, Waits: 7200}, condor.Waiting{GPUs: 1, VRAM: 2048, Waits: 60},
		condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 1200}, condor.Waiting{GPUs: 1, VRAM: 30000, Waits: 3600},
		condor.Waiting{GPUs: 1, VRAM: 31000, Waits: 1199}, condor.Waiting{GPUs: 1, VRAM: 16000, Waits: 9999},
	)
	d.Waiting[1].At = now.Add(-time.Minute)
	if got, err := q.Ask(t.Context(), &pool{demand: d}, pair()); err != nil || len(got.Waiting) != len(d.Waiting) {
		t.Errorf("the answer itself: %+v, %v", got, err)
	}
	want := elastic.Demand{Known: true, Shared: true, Whole: []elastic.Request{{GPUs: 2, At: now.Add(-time.Minute)}, {GPUs: 1, At: d.At}}}
	if got := q.Elastic(time.Now()); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if want := []gpu.MiB{30000, 20000}; !slices.Equal(q.large, want) {
		t.Errorf("large: %s", q.large)
	}
	q.Ask(t.Context(), &pool{demand: counted(
		condor.Waiting{GPUs: 2, Waits: 59}, condor.Waiting{GPUs: 1, VRAM: 2048, Waits: 59})}, pair())
	if d := q.Elastic(time.Now()); len(d.Whole) > 0 || d.Shared || !d.Known || len(q.large) > 0 {
		t.Errorf("what has not waited for long: %+v, %s", d, q.large)
	}
	q.Ask(t.Context(), &pool{demand: counted(condor.Waiting{GPUs: 2, Waits: 60})}, Interest{})
	if d := q.Elastic(time.Now()); len(d.Whole) > 0 {
		t.Errorf("a node without elastic GPUs: %+v", d)
	}
}

// Where no access point says anything, or the collector does not answer, what was said
// grows old and is then not known. The log says it once.
func TestQueueGrowsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		q := NewQueue(slog.New(slog.NewTextHandler(&said, nil)))
		if q.Elastic(time.Now()).Known {
			t.Error("known before anybody was asked")
		}
		q.Ask(t.Context(), &pool{demand: counted(condor.Waiting{GPUs: 2, Waits: 60})}, pair())
		if d := q.Elastic(time.Now()); !d.Known || len(d.Whole) != 1 || d.Whole[0].GPUs != 2 {
			t.Errorf("%+v", d)
		}
		down := &pool{err: errors.New("no")}
		time.Sleep(stale / 2)
		q.Ask(t.Context(), down, pair())
		if d := q.Elastic(time.Now()); !d.Known {
			t.Error("one failure forgets all")
		}
		time.Sleep(stale)
		q.Ask(t.Context(), down, pair())
		if q.Elastic(time.Now()).Known || q.Err() == nil {
			t.Error("an old answer still counts")
		}
		if n := strings.Count(said.String(), "is not known"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		q.Ask(t.Context(), &pool{}, pair())
		if q.Err() == nil || !strings.Contains(q.Err().Error(), "--for access-point") || q.Elastic(time.Now()).Known {
			t.Errorf("no access point says anything: %v", q.Err())
		}
		q.Ask(t.Context(), &pool{demand: counted()}, pair())
		if q.Err() != nil || !q.Elastic(time.Now()).Known {
			t.Error("the next answer does not count")
		}
	})
}

// TestTogether: answers are read and a GPU is chosen while the pool is asked.
func TestTogether(t *testing.T) {
	q, p := quiet(), &pool{demand: counted(condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 3600})}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 100 {
				q.Ask(t.Context(), p, pair())
				q.Reserve([]Room{{"a", true, 30000, 1}}, time.Now())
			}
		})
	}
	all.Wait()
	if u, least, _ := q.Reserve([]Room{{"a", true, 30000, 1}}, time.Now()); u != "a" || least != 20000 {
		t.Errorf("%q for %s", u, least)
	}
}

// TestReserve: it is new once, and ends with the request.
func TestReserve(t *testing.T) {
	q := quiet()
	rooms, now := []Room{{"a", true, 30000, 100}, {"b", true, 30000, 9000}}, time.Now()
	if u, _, fresh := q.Reserve(rooms, now); u != "" || fresh {
		t.Errorf("before anything waits: %q, %t", u, fresh)
	}
	q.Ask(t.Context(), &pool{demand: counted(condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 3600})}, pair())
	for i, want := range []bool{true, false} {
		if u, least, fresh := q.Reserve(rooms, now); u != "b" || least != 20000 || fresh != want {
			t.Errorf("%d: %q for %s, new %t", i, u, least, fresh)
		}
	}
	q.Ask(t.Context(), &pool{demand: counted()}, pair())
	if u, _, fresh := q.Reserve(rooms, now); u != "" || fresh {
		t.Errorf("when it runs: %q, %t", u, fresh)
	}
}

// waits is a node and the large jobs that wait, over hours.
type waits struct {
	t     *testing.T
	q     *Queue
	large []condor.Waiting
	// free is what is free on the only GPU.
	free gpu.MiB
}

// hours lets time pass, and returns for which size a GPU was closed in the middle of each hour.
func (w *waits) hours(n int) (closed []gpu.MiB) {
	for range n {
		for minute := range 60 {
			for i := range w.large {
				w.large[i].Waits += 60
			}
			w.q.Ask(w.t.Context(), &pool{demand: counted(w.large...)}, pair())
			_, least, _ := w.q.Reserve([]Room{{"a", true, 30000, w.free}}, time.Now())
			if minute == 30 {
				closed = append(closed, least)
			}
			time.Sleep(time.Minute)
		}
	}
	return closed
}

// TestRequestThatNothingMeets: a job that never starts keeps a GPU for an hour with room for it,
// or for a day without. Then the GPU is open for as long, and for that size for longer each time.
func TestRequestThatNothingMeets(t *testing.T) {
	never := condor.Waiting{GPUs: 1, VRAM: 30000, Waits: 9999}
	honest := condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 7200}
	for name, c := range map[string]struct {
		large []condor.Waiting
		free  gpu.MiB
		want  []gpu.MiB
	}{
		"alone":         {[]condor.Waiting{never}, 30000, []gpu.MiB{30000, 0, 0, 30000, 0, 0, 0, 0, 30000}},
		"beside others": {[]condor.Waiting{never, honest}, 30000, []gpu.MiB{30000, 0, 20000, 0, 30000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &waits{t: t, q: quiet(), large: c.large, free: c.free}
				if got := w.hours(len(c.want)); !slices.Equal(got, c.want) {
					t.Errorf("closed by the hour: %d", got)
				}
			})
		})
	}
	t.Run("without room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &waits{t: t, q: quiet(), large: []condor.Waiting{never}, free: 100}
			want := slices.Concat(slices.Repeat([]gpu.MiB{30000}, 24), slices.Repeat([]gpu.MiB{0}, 48), []gpu.MiB{30000})
			if got := w.hours(73); !slices.Equal(got, want) {
				t.Errorf("closed by the hour: %d", got)
			}
		})
	})
	t.Run("taken back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &waits{t: t, q: quiet(), large: []condor.Waiting{never}, free: 100}
			w.hours(5)
			w.large[0].VRAM = 29999
			want := slices.Concat(slices.Repeat([]gpu.MiB{0}, 5), []gpu.MiB{29999})
			if got := w.hours(6); !slices.Equal(got, want) {
				t.Errorf("closed by the hour: %d", got)
			}
		})
	})
}

// TestRequestsThatAreMet: the GPU stays closed to small jobs while large ones start there, but for a
// day at most, and opens for as long. Their size does not rest then: none was kept in vain.
func TestRequestsThatAreMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waits{t: t, q: quiet(), large: []condor.Waiting{{GPUs: 1, VRAM: 30000, Waits: 9999}}}
		for hour := range 72 {
			w.free = 30000
			if hour%2 == 0 {
				w.free = 100
			}
			want := []gpu.MiB{30000}
			if hour/24 == 1 {
				want[0] = 0
			}
			if got := w.hours(1); !slices.Equal(got, want) {
				t.Fatalf("hour %d: closed for %s, want %s", hour, got, want)
			}
		}
	})
}

// TestShortJobsBesideOneThatNeverStarts: with jobs that run for a minute now and then, a user keeps a
// GPU for half of the time at most, also by requests that go and come again.
func TestShortJobsBesideOneThatNeverStarts(t *testing.T) {
	for name, takenBack := range map[string]bool{"they wait on": false, "they are taken back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := []condor.Waiting{{GPUs: 1, VRAM: 30000, Waits: 9999}, {GPUs: 1, VRAM: 29999, Waits: 9999}}
				w, closed, looks := &waits{t: t, q: quiet(), large: never}, 0, 10*24*60
				for minute := range looks {
					w.free = 30000
					if minute%50 == 49 {
						w.free = 10
					}
					if w.large = never; takenBack {
						w.large = never[minute/300%2:][:1]
					}
					w.q.Ask(t.Context(), &pool{demand: counted(w.large...)}, pair())
					if _, least, _ := w.q.Reserve([]Room{{"a", true, 30000, w.free}}, time.Now()); least > 0 {
						closed++
					}
					time.Sleep(time.Minute)
				}
				if 2*closed > looks || closed == 0 {
					t.Errorf("closed for %d of %d minutes", closed, looks)
				}
			})
		})
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

// TestRun: the pool is asked while something changes by the answer, as often as its interest says.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := quiet()
		var answers atomic.Int64
		var interested atomic.Bool
		interested.Store(true)
		interest := func() (*Interest, time.Duration) {
			if !interested.Load() {
				return nil, time.Second
			}
			return &Interest{}, 10 * time.Second
		}
		done := make(chan struct{})
		go func() {
			q.Run(ctx, &pool{demand: counted()}, interest, func(condor.Demand, error) { answers.Add(1) })
			close(done)
		}()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := answers.Load(); n != 3 {
			t.Errorf("%d answers in 25 s, one each 10 s", n)
		}
		interested.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := answers.Load(); n != 3 {
			t.Errorf("%d answers, and nothing changes by them", n)
		}
		cancel()
		<-done
	})
}

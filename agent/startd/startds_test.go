package startd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/condor"
)

// fakeHTCondor is an HTCondor whose slots the test writes.
type fakeHTCondor struct {
	mu     sync.Mutex
	slots  map[string][]condor.Slot
	errs   map[string]error
	asked  int
	orders []string
}

func (h *fakeHTCondor) Slots(_ context.Context, startd string) ([]condor.Slot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	return h.slots[startd], h.errs[startd]
}

func (h *fakeHTCondor) Restart(_ context.Context, startd string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orders = append(h.orders, "restart "+startd)
	return h.errs["orders"]
}

func (h *fakeHTCondor) Reconfigure(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orders = append(h.orders, "reconfig")
	return h.errs["orders"]
}

func (h *fakeHTCondor) questions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}

// texts are events' texts.
type texts []string

func (l *texts) Event(e history.Event) { *l = append(*l, e.Text) }

type locals []string

func (l locals) Startds() []string { return l }

// newTestStartds are startds over a fake, and what they are to run.
func newTestStartds(local ...string) (s *Startds, h *fakeHTCondor, w *Wanted, events *texts) {
	h, w, events = &fakeHTCondor{slots: map[string][]condor.Slot{}, errs: map[string]error{}}, &Wanted{}, &texts{}
	s = New(Options{
		HTCondor: h, Local: locals(local), Events: events, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Wanted: func() Wanted { return *w },
		Settle: func(context.Context, []condor.Slot) bool { return true },
	})
	return s, h, w, events
}

// TestPace: a stream of admissions is a question now and then, and a configuration that was
// written meanwhile does not wait for the next.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, w, _ := newTestStartds()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		synctest.Wait()
		for range 40 {
			s.Entered()
			time.Sleep(askPace / 10)
		}
		synctest.Wait()
		if n := h.questions(); n != 4 {
			t.Errorf("%d questions in four times the pace", n)
		}
		before := h.questions()
		s.Entered()
		s.Rewritten()
		time.Sleep(askSoon)
		synctest.Wait()
		if n := h.questions() - before; n != 1 {
			t.Errorf("%d questions soon after a configuration was written", n)
		}
		time.Sleep(askPace)
		w.Observe = true
		before = h.questions()
		s.Entered()
		time.Sleep(askSoon / 5)
		synctest.Wait()
		if n := h.questions() - before; n != 1 {
			t.Errorf("%d questions soon after an observed job came", n)
		}
	})
}

// TestOpenQuestion: an open one is asked again soon, but in a stream of admissions, of which the
// last is always open, it keeps the pace.
func TestOpenQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, _, _ := newTestStartds()
		s.o.Settle = func(context.Context, []condor.Slot) bool { return false }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for range 30 {
			s.Entered()
			time.Sleep(askPace / 10)
		}
		synctest.Wait()
		if n := h.questions(); n != 3 {
			t.Errorf("%d questions in three times the pace", n)
		}
		before := h.questions()
		time.Sleep(askPace)
		synctest.Wait()
		if n := h.questions() - before; n != int(askPace/askRetry) {
			t.Errorf("%d questions after the stream", n)
		}
	})
}

// TestOneDoesNotAnswer: the others are heard, and since when they answer is kept.
func TestOneDoesNotAnswer(t *testing.T) {
	s, h, _, _ := newTestStartds("gpu5a1e0c11")
	h.slots[""] = []condor.Slot{{Name: "slot1@x", Plan: "a", JobID: "7.0"}}
	h.errs["gpu5a1e0c11"] = errors.New("no answer")
	var settled []condor.Slot
	s.o.Settle = func(_ context.Context, slots []condor.Slot) bool { settled = slots; return true }
	s.Ask(t.Context())
	said := s.Said()
	if len(settled) != 1 || len(said.Startds) != 1 || said.Startds[0].Jobs[0].ID != "7.0" || said.Err == nil {
		t.Errorf("%d slots, %+v", len(settled), said)
	}
	delete(h.errs, "gpu5a1e0c11")
	s.Ask(t.Context())
	since := s.Said().Answers
	s.Ask(t.Context())
	if said := s.Said(); said.Err != nil || !said.Answers.Equal(since) {
		t.Errorf("it answers since %s: %+v", since, said)
	}
	settled, h.errs[""], h.slots[""] = nil, errors.New("no answer"), nil
	if s.Ask(t.Context()) || settled != nil || s.Said().Err == nil {
		t.Errorf("no startd answers: %+v", s.Said())
	}
}

// TestUnreadableAd: it is reported, and logged once.
func TestUnreadableAd(t *testing.T) {
	s, h, _, _ := newTestStartds()
	var log strings.Builder
	s.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	h.slots[""] = []condor.Slot{{Name: "slot1_1@x", Unreadable: "AssignedGPUs"}}
	for range 2 {
		s.Ask(t.Context())
	}
	const want = "ad of slot1_1 has attributes that cannot be read: AssignedGPUs"
	if said := s.Said().Unreadable; len(said) != 1 || !strings.Contains(said[0], want) {
		t.Errorf("%q", said)
	}
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}

// TestFailedOrder: an order that HTCondor refuses is given again at the next question, and
// closes no GPU.
func TestFailedOrder(t *testing.T) {
	s, h, _, events := newTestStartds()
	change := []api.Change{{Need: api.NeedRestart, Plan: "b", GPUs: []string{"GPU-1"}, Says: "It restarts."}}
	h.errs["orders"] = errors.New("no condor_master")
	if got := s.order(t.Context(), config.ChangesDrain, change, nil, time.Now()); len(got) > 0 || len(*events) > 0 {
		t.Errorf("drains %v, events %q", got, *events)
	}
	delete(h.errs, "orders")
	got := s.order(t.Context(), config.ChangesDrain, change, nil, time.Now())
	if !got["GPU-1"] || !slices.Equal(*events, texts{"It restarts."}) || len(h.orders) != 2 {
		t.Errorf("drains %v, events %q, orders %q", got, *events, h.orders)
	}
}

// TestReport: gpuslotd reports a change once, and again for a newer plan or another need. It reports its end where its
// startd has no other.
func TestReport(t *testing.T) {
	c := api.Change{Daemon: "STARTD", Need: api.NeedRestart, Plan: "a", Says: "now"}
	newer, other, neighbour := c, c, c
	newer.Plan, other.Need, neighbour.Daemon = "b", api.NeedReconfig, "STARTD_GPU1"
	for name, tt := range map[string]struct {
		before, now []api.Change
		want        texts
	}{
		"it comes":        {nil, []api.Change{c}, texts{"now"}},
		"it stays":        {[]api.Change{c}, []api.Change{c}, nil},
		"a newer plan":    {[]api.Change{c}, []api.Change{newer}, texts{"now"}},
		"another need":    {[]api.Change{c}, []api.Change{other}, texts{"now"}},
		"another startd":  {[]api.Change{c}, []api.Change{neighbour}, texts{"now", "STARTD runs as planned."}},
		"it has been met": {[]api.Change{c}, nil, texts{"STARTD runs as planned."}},
	} {
		s, _, _, events := newTestStartds()
		if s.report(tt.before, tt.now); !slices.Equal(*events, tt.want) {
			t.Errorf("%s: %q, want %q", name, *events, tt.want)
		}
	}
}

// TestStep: what policy does about a change.
func TestStep(t *testing.T) {
	busy, blocked := []api.ChangeJob{{Slot: "slot1_1", ID: "7.0"}}, "STARTD"
	for _, tt := range []struct {
		c                      api.Change
		never, whenIdle, drain string
	}{
		{api.Change{Need: api.NeedRestart}, "", api.NeedRestart, api.NeedRestart},
		{api.Change{Need: api.NeedRestart, Jobs: busy}, "", "", api.NeedRestart},
		{api.Change{Need: api.NeedRestart, Blocked: blocked}, "", "", ""},
		{api.Change{Need: api.NeedReconfig}, "", api.NeedReconfig, api.NeedReconfig},
		{api.Change{Need: api.NeedStart}, "", api.NeedStart, api.NeedStart},
		{api.Change{Need: api.NeedStop}, "", api.NeedStop, api.NeedStop},
		{api.Change{Need: api.NeedStop, Jobs: busy}, "", "", ""},
	} {
		for policy, want := range map[config.Changes]string{config.ChangesNever: tt.never, config.ChangesWhenIdle: tt.whenIdle, config.ChangesDrain: tt.drain} {
			if got := stepOf(tt.c, policy); got != want {
				t.Errorf("%+v under %s: %q, want %q", tt.c, policy, got, want)
			}
		}
	}
}

// TestOrderedAgain: an order that has no effect is given again, but not at once,
// and a newer plan is a new order.
func TestOrderedAgain(t *testing.T) {
	now := time.Now()
	c := api.Change{Need: api.NeedRestart, Plan: "a"}
	o := orders{}
	o.give(c, now)
	if o.due(c, now.Add(orderAgain-time.Second)) || !o.due(c, now.Add(orderAgain)) {
		t.Error("not given again after orderAgain, or before")
	}
	if o.due(api.Change{Need: api.NeedStart}, now) {
		t.Error("a startd that restarts is started")
	}
	o.forget(nil, nil) // it does not answer while it restarts
	o.give(c, now.Add(orderAgain))
	if o.due(c, now.Add(3*orderAgain-time.Second)) || !o.due(c, now.Add(3*orderAgain)) {
		t.Error("without effect the next order does not wait twice as long")
	}
	if c.Plan = "b"; !o.due(c, now) {
		t.Error("a newer plan is not ordered")
	}
	if o.forget(nil, []api.StatusStartd{{}}); len(o) != 0 {
		t.Errorf("of a startd that runs as planned orders are left: %v", o)
	}
}

// TestOrderAgain: an order without effect is given again ever later, and one for
// another plan at once.
func TestOrderAgain(t *testing.T) {
	now, o := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), orders{}
	one, two := api.Change{Need: api.NeedRestart, Plan: "one"}, api.Change{Need: api.NeedRestart, Plan: "two"}
	o.give(one, now)
	o.give(one, now)
	if o.due(one, now.Add(2*orderAgain-time.Second)) || !o.due(one, now.Add(2*orderAgain)) {
		t.Errorf("the second order: %+v", o)
	}
	o.give(two, now)
	if o.due(two, now.Add(orderAgain-time.Second)) || !o.due(two, now.Add(orderAgain)) {
		t.Errorf("the first order of another plan: %+v", o)
	}
}

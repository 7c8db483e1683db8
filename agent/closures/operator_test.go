package closures

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// fakeFaults are closed GPUs with their reasons.
type fakeFaults struct {
	closed map[gpu.UUID]string
	// err is why an opening cannot be kept.
	err error
}

func (f *fakeFaults) Verdict(u gpu.UUID, now time.Time) faults.Verdict {
	if why := f.closed[u]; why != "" {
		return faults.Verdict{Class: faults.ClosedBroken, Reason: why, Since: now}
	}
	return faults.Verdict{}
}

func (f *fakeFaults) Open(u gpu.UUID) error {
	if f.err == nil {
		delete(f.closed, u)
	}
	return f.err
}

type events []history.Event

func (e *events) Event(h history.Event) { *e = append(*e, h) }

// TestOperator: what an operator closes and opens, what they are told, and what is noted.
func TestOperator(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: gpuA, Index: 0}, {UUID: gpuB, Index: 1}}}
	type world struct {
		Operator
		faults *fakeFaults
		noted  *events
	}
	for name, c := range map[string]struct {
		before func(w world)
		req    api.Request
		seen   map[gpu.UUID]string
		// says are the words of the reply, fails those of the error; noted counts the events.
		says, fails []string
		noted       int
		left        int // closures of both GPUs
	}{
		"its own closure": {
			before: func(w world) { w.close(t, p, "0", "", "a fan") },
			req:    api.Request{GPU: "0"}, says: []string{"is opened, no longer closed by operator since", ": a fan"}, noted: 1,
		},
		"nothing closes it": {req: api.Request{GPU: "0"}, says: []string{") is open\n"}},
		"the closure of another": {
			before: func(w world) { w.close(t, p, "0", "health", "hot") },
			req:    api.Request{GPU: "0"}, fails: []string{"is closed by health since", ": hot", "--override"}, left: 1,
		},
		"one of two": {
			before: func(w world) { w.close(t, p, "0", "health", "hot"); w.close(t, p, "0", "", "a fan") },
			req:    api.Request{GPU: "0"}, says: []string{"is no longer closed by operator, but stays closed by health since", ": hot"}, noted: 1, left: 1,
		},
		"everybody's": {
			before: func(w world) { w.close(t, p, "0", "health", "hot"); w.close(t, p, "0", "", "a fan") },
			req:    api.Request{GPU: "0", Force: true}, says: []string{"is opened"}, noted: 2,
		},
		"a fault": {
			before: func(w world) { w.faults.closed[gpuA] = "Xid 79" },
			req:    api.Request{GPU: "0"}, fails: []string{"is closed since", "Xid 79"},
		},
		"a fault beside a closure": {
			before: func(w world) { w.faults.closed[gpuA] = "Xid 79"; w.close(t, p, "0", "", "a fan") },
			req:    api.Request{GPU: "0"}, says: []string{"no longer closed by operator, but stays closed because Xid 79"}, noted: 1,
		},
		"a fault, overridden": {
			before: func(w world) { w.faults.closed[gpuA] = "Xid 79" },
			req:    api.Request{GPU: "0", Force: true}, says: []string{"is opened, although Xid 79"}, noted: 1,
		},
		"an override that cannot be kept": {
			before: func(w world) { w.faults.closed[gpuA], w.faults.err = "Xid 79", errors.New("no space") },
			req:    api.Request{GPU: "0", Force: true}, fails: []string{"the next gpuslotd will close it again", "no space"},
		},
		"what the agent sees": {
			seen: map[gpu.UUID]string{gpuA: "its daemon does not answer"},
			req:  api.Request{GPU: "0"}, fails: []string{"but because its daemon does not answer"},
		},
		"one of all cannot": {
			before: func(w world) { w.faults.closed[gpuA] = "Xid 79"; w.close(t, p, "1", "", "a fan") },
			req:    api.Request{GPU: "all"}, fails: []string{"Xid 79"}, says: []string{"is opened, no longer closed by operator"}, noted: 1,
		},
		"it left the node closed": {
			before: func(w world) {
				if err := w.Table.Close(Closure{GPU: part, Owner: "operator", Reason: "gone"}); err != nil {
					t.Fatal(err)
				}
			},
			req: api.Request{GPU: string(part)}, says: []string{"is opened, no longer closed by operator", ": gone"}, noted: 1,
		},
		"it left the node":       {req: api.Request{GPU: string(part)}, fails: []string{"there is no GPU"}},
		"an owner without name":  {req: api.Request{GPU: "0", Owner: "a b"}, fails: []string{"a b"}},
		"the node is quiesced":   {before: func(w world) { w.quiesce(t) }, req: api.Request{GPU: "0"}, says: []string{"gpuslot node resume takes that back"}},
		"it and the node closed": {before: func(w world) { w.close(t, p, "0", "", "a fan"); w.quiesce(t) }, req: api.Request{GPU: "0"}, says: []string{"no longer closed by operator, but stays", "resume takes that back"}, noted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{faults: &fakeFaults{closed: map[gpu.UUID]string{}}, noted: &events{}}
			w.Operator = Operator{Table: NewTable(filepath.Join(t.TempDir(), "holds.json")), Faults: w.faults, Events: w.noted, Log: slog.New(slog.DiscardHandler)}
			if c.before != nil {
				c.before(w)
			}
			*w.noted = nil
			got, err := w.Open(p, c.seen, c.req)
			text, failed := strings.Join(got.Text, "\n"), ""
			if err != nil {
				failed = err.Error()
			}
			if (len(c.fails) == 0) != (err == nil) || (len(c.says) == 0) != (text == "") {
				t.Errorf("%q, %v", text, err)
			}
			for _, want := range c.says {
				if !strings.Contains(text+"\n", want) {
					t.Errorf("it says %q, without %q", text, want)
				}
			}
			for _, want := range c.fails {
				if !strings.Contains(failed, want) {
					t.Errorf("the error is %q, without %q", failed, want)
				}
			}
			if len(*w.noted) != c.noted {
				t.Errorf("noted: %v", *w.noted)
			}
			if s, _ := w.Table.now(); len(s.List) != c.left {
				t.Errorf("left: %v", s.List)
			}
		})
	}
}

func (o Operator) close(t *testing.T, p *plan.Plan, name, owner, reason string) {
	t.Helper()
	if _, err := o.Close(p, api.Request{GPU: name, Owner: owner, Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

func (o Operator) quiesce(t *testing.T) {
	t.Helper()
	if err := o.Table.SetNode(Node{Phase: Quiesced, Reason: "a driver"}); err != nil {
		t.Fatal(err)
	}
}

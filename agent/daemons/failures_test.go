package daemons

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

var errNo = errors.New("no")

// TestProblems: a round returns each, and when it is gone the next round does the rest.
func TestProblems(t *testing.T) {
	for what, want := range map[string]string{
		"set": "control daemons: no", "trim": "grows without end: no", "drop": "no", "stop": "stop the control daemon of GPU-0",
		"flags": "mps-flags",
	} {
		n := newNode(t, 2).tested()
		switch what {
		case "set": // there is something to set
			n.daemons[uuid(0)].limit = 1
		case "stop":
			n.plan.GPUs = n.plan.GPUs[:1]
		case "flags":
			if err := os.WriteFile(FlagsDirectory(n.paths), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.fails[what] = errNo
		err := errors.Join(n.round()...)
		if err == nil || !strings.Contains(err.Error(), want) || n.Settled() != (what != "set" && what != "stop") {
			t.Errorf("%s: %v, settled %t", what, err, n.Settled())
		}
		delete(n.fails, what)
		if what == "flags" {
			_ = os.Remove(FlagsDirectory(n.paths))
		}
		if err := errors.Join(n.round()...); err != nil || !n.Settled() {
			t.Errorf("%s, afterwards: %v, settled %t", what, err, n.Settled())
		}
		n.says("")
	}
}

// TestStopFails: a daemon that does not stop is wanted as before. One of which the change was abandoned is left alone.
func TestStopFails(t *testing.T) {
	for _, what := range []string{"set", "stop", "the context"} {
		n := newNode(t, 2).tested()
		ctx, cancel := context.WithCancel(t.Context())
		if what == "the context" {
			cancel()
		}
		n.fails[what] = errNo
		if err := n.Stop(ctx, uuid(1)); err == nil || !n.Settled() || !Wants(n.last, uuid(1)) || (n.since() == "") != (what == "the context") {
			t.Errorf("%s: %v, settled %t", what, err, n.Settled())
		}
		cancel()
	}
	n := newNode(t, 2).tested()
	n.fails["set"] = errNo
	if err := n.StopAll(t.Context()); err == nil || !Wants(n.last, uuid(1)) {
		t.Errorf("all: %v", err)
	}
}

// TestRestartFails: the GPU is closed with the reason, and the next round tries again.
func TestRestartFails(t *testing.T) {
	for name, set := range map[string]func(*node){
		"flags":      func(n *node) { n.plan.GPUs[0].Tenancy.Policy = config.TenancyMultiUser },
		"partitions": func(n *node) { n.why, n.other = "they are others", true },
		"self-test": func(n *node) {
			n.lines = []string{"[2026-04-28 18:20:41.986 Server    70] Device pinned memory limit for device 0 set to 0x213000000 bytes"}
		},
	} {
		n := newNode(t, 1)
		n.plan.GPUs[0].Threads = plan.Threads{Policy: config.ThreadsPartitioned}
		n.comes = mps.Active
		if name != "self-test" {
			n.tested()
		}
		set(n)
		n.fails["restart"] = errNo
		for range 2 {
			n.round()
		}
		if n.says("its control daemon: no"); !strings.Contains(n.since(), "restart") {
			t.Errorf("%s: not restarted", name)
		}
		delete(n.fails, "restart")
		n.why, n.other, n.lines = "", false, nil
		for range 4 {
			n.round()
		}
		n.says("")
	}
}

// TestUnansweredAgain: a restart that did not help is repeated after a while, and the history has those that did.
func TestUnansweredAgain(t *testing.T) {
	n := newNode(t, 1).tested()
	d := n.daemons[uuid(0)]
	at := time.Now()
	again := func(after time.Duration) bool {
		d.fault = mps.Wedged
		n.noted = nil
		n.round()
		n.restartUnanswered(t.Context(), n.now, at.Add(after))
		return strings.Contains(n.since(), "restart")
	}
	n.fails["restart"] = errNo
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{
		{0, false}, {unansweredFor + time.Second, true}, {unansweredAgain + unansweredFor, false},
		{unansweredAgain + unansweredFor + time.Second, true},
	} {
		if got := again(c.after); got != c.want || len(n.noted) > 0 {
			t.Errorf("look %d: restarted %t, noted %q", i, got, n.noted)
		}
	}
	if !strings.Contains(n.log.String(), "was not restarted") || n.now[uuid(0)].Err == nil {
		t.Errorf("%v, logged %s", n.now[uuid(0)].Err, &n.log)
	}
	delete(n.fails, "restart")
	if !again(2*unansweredAgain+unansweredFor+time.Second) || len(n.noted) != 1 || n.now[uuid(0)].Err != nil {
		t.Errorf("%v, noted %q", n.now[uuid(0)].Err, n.noted)
	}
}

// TestOrdersThatCannotBeCarriedOut: each says why, and only force restarts a daemon whose clients are not known.
func TestOrdersThatCannotBeCarriedOut(t *testing.T) {
	n := newNode(t, 2).tested()
	n.plan.GPUs[1].Mode = config.ModeWhole
	order := func(i int, force bool) string {
		done := make(chan orderEnd, 1)
		n.Carry(t.Context(), Order{uuid(i), force, done}, &n.plan)
		end := <-done
		if (end.err == nil) == (end.text == "") {
			t.Errorf("%q, %v", end.text, end.err)
		}
		if end.err != nil {
			return end.err.Error()
		}
		return end.text
	}
	for i := range 2 {
		if got := order(1+i, true); !strings.Contains(got, "left the plan") || n.since() != "" {
			t.Errorf("GPU %d: %s", 1+i, got)
		}
	}
	n.fails["servers"] = errNo
	if got := order(0, false); !strings.Contains(got, "is not known, because no") || n.since() != "" {
		t.Error(got)
	}
	if n.noted = nil; !strings.Contains(order(0, true), "restarted") || n.since() != "restart" || len(n.noted) != 1 {
		t.Errorf("forced: noted %q", n.noted)
	}
	n.fails["restart"], n.noted = errNo, nil
	if got := order(0, true); got != "no" || len(n.noted) > 0 {
		t.Errorf("%s, noted %q", got, n.noted)
	}
}

// TestOrderThatTakesLong: who asked does not wait for longer than its context.
func TestOrderThatTakesLong(t *testing.T) {
	n := newNode(t, 1).tested()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-n.Orders()
		cancel()
	}()
	if _, err := n.Keeper.Restart(ctx, &n.plan.GPUs[0], false); err == nil || !strings.Contains(err.Error(), "the restart takes long") {
		t.Error(err)
	}
}

// TestContextsEnd: none outlives what was asked with it.
func TestContextsEnd(t *testing.T) {
	n := newNode(t, 1)
	n.deadline = time.Hour
	n.comes = mps.Active
	n.lines = []string{"[2026-04-28 18:20:41.986 Server    70] Device pinned memory limit for device 0 set to 0x213000000 bytes"}
	for range 3 {
		n.round()
	}
	d := n.daemons[uuid(0)]
	d.servers, d.stale = []mps.Server{{ID: process.ID{PID: 71, Started: 8}, UID: 1000, Status: mps.Active, Clients: []int{90}}}, []int{70}
	n.round()
	d.servers = serverIn(mps.Faulted, 500)
	n.round()
	d.fault = mps.Wedged
	n.round()
	n.restartUnanswered(t.Context(), n.now, time.Now().Add(2*unansweredFor))
	n.Carry(t.Context(), Order{uuid(0), true, make(chan orderEnd, 1)}, &n.plan)
	if err := n.Stop(t.Context(), uuid(0)); err != nil {
		t.Error(err)
	}
	if did := n.since(); did != "set, server of 0, log, end server 70, restart, server of 0, log, set servers [70], restart, restart, set" {
		t.Errorf("told %q", did)
	}
	for i, ctx := range n.contexts {
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("context %d: %v", i, ctx.Err())
		}
	}
}

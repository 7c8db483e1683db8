package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestDaemonFaults: what happens to a control daemon between two commands, and
// what the next job and the next round make of it.
func TestDaemonFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*fakeDaemons)
		undo func(*fakeDaemons)
		says string
		// heals: the next round mends it by itself.
		heals bool
	}{
		{"killed", func(f *fakeDaemons) { f.kill(uuid(0), false) }, nil, "not-running", true},
		{"killed and restarted by systemd", func(f *fakeDaemons) { f.kill(uuid(0), true) }, nil, "gone", true},
		{"SIGSTOP", func(f *fakeDaemons) { f.change(uuid(0), func(d *fakeDaemon) { d.frozen = true }) },
			func(f *fakeDaemons) { f.change(uuid(0), func(d *fakeDaemon) { d.frozen = false }) }, "suspended", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			s := ta.proc.starter(100, "slot1_1")
			tt.do(ta.daemons)
			// The proof is seconds old and good; the cheap check sees it at once.
			r := ta.refuse(s, 1000, "alice", uuid(0), 4096)
			if r.Code != api.CodeClosed || !strings.Contains(r.Reason, tt.says) {
				t.Errorf("refusal = %+v", r)
			}
			if why := ta.reason(0); !strings.Contains(why, tt.says) {
				t.Errorf("START is not told: %q", why)
			}
			if why := ta.reason(1); why != "" {
				t.Errorf("the other GPU is closed too: %s", why)
			}
			select {
			case <-ta.wake:
			default:
				t.Error("the loop was not woken")
			}
			ta.apply(false)
			if !tt.heals {
				ta.refuse(s, 1000, "alice", uuid(0), 4096)
				if why := ta.status().GPUs[0].Reason; !strings.Contains(why, tt.says) {
					t.Errorf("status says %q", why)
				}
				tt.undo(ta.daemons)
				ta.apply(false)
			}
			if d := ta.daemons.running[uuid(0)]; d.limit != 32256 {
				t.Errorf("accepts with the limit %s", d.limit)
			}
			ta.grant(s, 1000, "alice", uuid(0), 4096)
		})
	}
}

// TestWedgedDaemon: one that lives but does not answer closes its GPU at the
// first question.
func TestWedgedDaemon(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true })
	ta.apply(false)
	if why := ta.reason(0); !strings.Contains(why, "wedged") {
		t.Errorf("reason = %q", why)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = false })
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Errorf("it answers again: %s", why)
	}
}

func TestDaemonNotInstalled(t *testing.T) {
	ta := bareTestAgent(t, 2, "")
	ta.daemons.broken[uuid(1)] = &mps.Error{GPU: uuid(1), Fault: mps.NotInstalled, Text: "nvidia-cuda-mps-control is not in PATH: install it"}
	ta.restart()
	if why := ta.reason(1); !strings.Contains(why, "not in PATH: install it") {
		t.Errorf("reason = %q", why)
	}
	if why := ta.reason(0); why != "" {
		t.Errorf("the other GPU is closed too: %s", why)
	}
	delete(ta.daemons.broken, uuid(1))
	ta.apply(false)
	if why := ta.reason(1); why != "" {
		t.Errorf("once installed: %s", why)
	}
}

func TestGuard(t *testing.T) {
	fault := func(f mps.Fault) error { return &mps.Error{GPU: uuid(0), Fault: f, Text: string(f)} }
	w := mps.Wanted{GPU: uuid(0), Limit: 4096, ThreadPercentage: 100}
	good := mps.Proof{PID: 10, Started: 1, At: time.Unix(1000, 0), Servers: []int{70, 71}}
	g := guard{}.next(w, good, nil)
	if g.closed() != "" || g.restarts != 0 {
		t.Errorf("first proof: %+v", g)
	}
	for _, f := range []mps.Fault{mps.NotRunning, mps.Suspended, mps.Gone, mps.WrongLimits, mps.Refused, mps.Foreign, mps.Wedged} {
		if bad := g.next(w, mps.Proof{}, fault(f)); bad.closed() == "" {
			t.Errorf("%s does not close at once", f)
		}
	}
	for _, f := range []mps.Fault{mps.Busy} {
		once := g.next(w, mps.Proof{}, fault(f))
		if once.closed() != "" || once.next(w, mps.Proof{}, fault(f)).closed() == "" {
			t.Errorf("%s: one failure closes, or two do not", f)
		}
		if (guard{}).next(w, mps.Proof{}, fault(f)).closed() == "" {
			t.Errorf("%s: open without any proof", f)
		}
	}
	if bad := g.next(w, mps.Proof{}, errors.New("unknown")); bad.closed() == "" {
		t.Error("an unknown error does not close")
	}
	other := good
	other.PID = 11
	if g = g.next(w, other, nil); g.restarts != 1 {
		t.Errorf("restarts = %d", g.restarts)
	}
}

func TestServersText(t *testing.T) {
	for want, g := range map[string]guard{
		"no server yet (starts with the first job)": {},
		"ACTIVE (pid 70, uid 1000, 2 clients)": {proof: mps.Proof{States: []mps.Server{
			{ID: process.ID{PID: 70}, UID: 1000, Status: mps.Active, Clients: []int{1, 2}}}}},
		"listed (pid 70, uid 0, 1 client; this control daemon tells no state); FAULT (pid 71, uid 7, 0 clients)": {proof: mps.Proof{States: []mps.Server{
			{ID: process.ID{PID: 70}, ThreadPercentage: "100.0", Clients: []int{1}}, {ID: process.ID{PID: 71}, UID: 7, Status: mps.Faulted}}}},
		"ACTIVE (pid 70, uid 7, 0 clients); its clients get other limits than those now in force": {proof: mps.Proof{Stale: []int{70}, States: []mps.Server{
			{ID: process.ID{PID: 70}, UID: 7, Status: mps.Active}}}},
	} {
		if got := serversText(g); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

package agent

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
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

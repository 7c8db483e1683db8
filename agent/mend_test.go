package agent

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestServersAreMended: a server with other limits gets the daemon's, once.
func TestServersAreMended(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	var happened []string
	ta.daemons.happens = func(what string) { happened = append(happened, what) }
	ta.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers, d.stale = []mps.Server{{ID: process.ID{PID: 50}, Status: mps.Active}}, []int{50}
	})
	v := ta.apply(false)
	if !slices.Equal(happened, []string{"set servers [50]"}) || len(v.daemons[uuid(0)].Checked.Stale) > 0 {
		t.Errorf("happened: %q, stale %v", happened, v.daemons[uuid(0)].Checked.Stale)
	}
	ta.apply(false)
	if len(happened) != 1 {
		t.Errorf("happened again: %q", happened)
	}
}

// TestForeignChange: somebody else's change of a limit is told, counted, and undone.
func TestForeignChange(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	const counter = "gpuslot_control_daemon_foreign_changes_total"
	want := ta.view.Load().daemons[uuid(0)].Wanted.Limit
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.limit = 1 })
	ta.apply(false)
	if got := ta.count(counter); got != 1 {
		t.Errorf("%s = %v", counter, got)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) {
		if d.limit != want {
			t.Errorf("limit = %s, want %s", d.limit, want)
		}
	})
	ta.apply(false)
	if got := ta.count(counter); got != 1 {
		t.Errorf("%s = %v after a round without a change", counter, got)
	}
}

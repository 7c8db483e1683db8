package daemons

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestBeats: the loop shows that it is alive before each step that may take long.
func TestBeats(t *testing.T) {
	n := newNode(t, 1)
	n.comes = mps.Active
	n.plan.GPUs[0].Threads = plan.Threads{Policy: config.ThreadsPartitioned}
	for i, want := range []int{4, 3, 2} { // a round, its partitions; at first the daemon is set, and a server is tried and ended
		n.beats = 0
		if n.round(); n.beats != want {
			t.Errorf("round %d: %d beats, want %d", i, n.beats, want)
		}
	}
}

// TestSetIsNoted: the history has each daemon that was started or set right, and no other.
func TestSetIsNoted(t *testing.T) {
	n := newNode(t, 2)
	n.keep = true // so that the test sets
	set := func(want int) {
		t.Helper()
		n.round()
		n.noted = nil
		if err := n.Keeper.Set(t.Context(), n.now, n.Wanted(&n.plan)); err != nil || len(n.noted) != want {
			t.Errorf("noted %q, want %d; %v", n.noted, want, err)
		}
	}
	set(2)
	set(0)
	n.daemons[uuid(1)].limit = 1
	set(1)
	delete(n.daemons, uuid(0))
	set(1)
}

// TestWedgedIsNotSet: no daemon is set again for one that does not answer, since that helps it nothing.
func TestWedgedIsNotSet(t *testing.T) {
	n := newNode(t, 2).tested()
	n.daemons[uuid(0)].fault = mps.Wedged
	if n.round(); n.since() != "" || n.now[uuid(0)].restartAt.IsZero() {
		t.Errorf("%+v", n.now[uuid(0)])
	}
}

// TestLeftoversOfARound: a round looks after the clients that keep a server in FAULT.
func TestLeftoversOfARound(t *testing.T) {
	n := newNode(t, 1).tested()
	n.daemons[uuid(0)].servers = serverIn(mps.Faulted, os.Getpid()) // of no slot, so that it is left alone
	n.round()
	s := n.now[uuid(0)]
	s.Servers.faulted = time.Now().Add(-leftoverAfter)
	n.now[uuid(0)] = s
	if n.round(); !strings.Contains(n.log.String(), "a client of a faulted server was not ended") {
		t.Errorf("logged %s", &n.log)
	}
}

// TestOneOfMany: daemons that are not well keep no round from one that is.
func TestOneOfMany(t *testing.T) {
	n := newNode(t, 8).tested()
	for i := range 7 {
		n.daemons[uuid(i)].fault = mps.Wedged
	}
	n.daemons[uuid(7)].stale = []int{70}
	if n.round(); n.since() != "set servers [70]" {
		t.Error("the servers of one are not set beside others")
	}
	n.daemons[uuid(7)].servers = serverIn(mps.Faulted, 500)
	if n.round(); n.counts["fault"] != 1 {
		t.Errorf("%d faults are counted", n.counts["fault"])
	}
	for i := range 7 {
		s := n.now[uuid(i)]
		s.Checked.PID = 0 // never seen
		n.now[uuid(i)] = s
	}
	n.daemons[uuid(7)].fault = mps.Suspended
	if !n.Moved(n.now) {
		t.Error("one did not move beside others")
	}
}

// TestFlagsOfNoPlan: a daemon with a flag that the plan does not want is restarted, too. One of which the flags are not
// known is left alone, and so is one whose clients are not known.
func TestFlagsOfNoPlan(t *testing.T) {
	n := newNode(t, 1)
	g := &n.plan.GPUs[0]
	g.Tenancy.Policy = config.TenancyMultiUser
	n.tested()
	g.Tenancy.Policy = config.TenancyOneAtATime
	n.fails["servers"] = errNo
	n.round()
	n.says("serves several accounts at once, but tenancy = \"one-at-a-time\": it restarts when the jobs there have ended")
	delete(n.fails, "servers")
	if n.round(); n.since() != "restart, server of 0" {
		t.Error("not restarted")
	}
	n.says("")
	g.Tenancy.Policy = config.TenancyMultiUser
	if has, _ := n.flagsDiffer(g, process.ID{PID: 7}); has != "" {
		t.Errorf("of a process without arguments: %s", has)
	}
}

// partitionsOf are those of one daemon, which lacks some.
type partitionsOf struct {
	*node
	pid int
}

func (p partitionsOf) Have(_ context.Context, _ *plan.GPU, daemon process.ID, _ time.Duration) (why string, other bool) {
	if daemon.PID == p.pid {
		return "they are others", true
	}
	return "", false
}

// TestPartitionsOfTheNextDaemon: a GPU whose daemon was restarted for its partitions opens in the same round.
func TestPartitionsOfTheNextDaemon(t *testing.T) {
	n := newNode(t, 1)
	n.plan.GPUs[0].Threads = plan.Threads{Policy: config.ThreadsPartitioned}
	n.tested()
	n.Partitions = partitionsOf{n, n.daemons[uuid(0)].id.PID}
	if n.round(); !strings.HasPrefix(n.since(), "restart") {
		t.Error("not restarted")
	}
	n.says("")
}

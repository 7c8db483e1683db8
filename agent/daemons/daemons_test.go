package daemons

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// tested lets the self-test of every GPU be over.
func (n *node) tested() *node {
	n.t.Helper()
	n.comes = mps.Active
	for range 3 {
		n.round()
	}
	n.since()
	n.says("")
	return n
}

// A daemon is started once and left alone; its server is tested with the first round.
func TestRound(t *testing.T) {
	n := newNode(t, 2)
	n.comes = mps.Active
	n.round()
	if got := n.since(); got != "set, server of 0, server of 0" {
		t.Errorf("told %q", got)
	}
	n.round()
	if got := n.since(); got != "log, log, end server 70, end server 70" || !n.Settled() {
		t.Errorf("told %q", got)
	}
	if n.round(); n.since() != "" || n.counts["trim"] != 6 {
		t.Errorf("trimmed %d times", n.counts["trim"])
	}
	// The plan has one GPU less: its daemon stops, but not under a job.
	n.plan.GPUs = n.plan.GPUs[:1]
	n.busy[uuid(1)] = true
	if n.round(); n.daemons[uuid(1)] == nil {
		t.Error("the daemon of a running job was stopped")
	}
	n.busy[uuid(1)] = false
	if n.round(); n.daemons[uuid(1)] != nil {
		t.Error("a daemon runs that the plan does not have")
	}
	if err := n.StopAll(t.Context()); err != nil || len(n.daemons) > 0 || n.Settled() {
		t.Errorf("%v, %d daemons", err, len(n.daemons))
	}
}

// A GPU that does not answer does not keep the next from its self-test.
func TestEachGPUIsTested(t *testing.T) {
	n := newNode(t, 2)
	n.comes = mps.Active
	n.start(uuid(0)).fault = mps.Wedged
	n.start(uuid(1)).limit = n.plan.GPUs[1].LargestRequest
	n.keep = true // no daemon is set again
	n.round()
	if n.daemons[uuid(0)].servers != nil || n.daemons[uuid(1)].servers == nil {
		t.Errorf("told %q", n.since())
	}
}

// Nothing is started while it is not known which daemons jobs use.
func TestKeep(t *testing.T) {
	n := newNode(t, 1)
	n.keep = true
	if n.round(); n.since() != "" {
		t.Error("daemons were set")
	}
	n.says("its control daemon: it is not-running")
	n.keep = false
	n.tested()
}

// A daemon that ends or forgets its limits closes its GPU and is set again in the same round.
func TestRepairs(t *testing.T) {
	n := newNode(t, 1).tested()
	n.daemons[uuid(0)].limit = 1
	if n.round(); n.since() != "set" || n.counts["change"] != 1 {
		t.Errorf("%d changes are counted", n.counts["change"])
	}
	delete(n.daemons, uuid(0))
	n.busy[uuid(0)] = true // no self-test beside a job
	if n.round(); n.since() != "set" || n.now[uuid(0)].Restarts != 1 || n.counts["change"] != 1 {
		t.Errorf("%+v", n.now[uuid(0)])
	}
	n.daemons[uuid(0)].stale = []int{70}
	if n.round(); n.since() != "set servers [70]" {
		t.Error("servers keep other limits")
	}
	n.says("")
}

// The log of a server that jobs use is read once: a limit that differs by less than a GiB is set
// again for later clients. A job can write such a line, so it closes nothing.
func TestLogOfAJobsServer(t *testing.T) {
	const line = "[2026-04-28 18:20:41.986 Server    71] Device pinned memory limit for device 0 set to "
	for limit, want := range map[string]string{"0x200000000 bytes": "log", "0x213000000 bytes": "log, set servers [71]"} {
		n := newNode(t, 1).tested()
		n.busy[uuid(0)], n.lines = true, []string{line + limit}
		n.daemons[uuid(0)].servers = []mps.Server{{ID: process.ID{PID: 71, Started: 8}, UID: 1000, Status: mps.Active, Clients: []int{90}}}
		n.round()
		if got := n.since(); got != want {
			t.Errorf("%s: told %q, want %q", limit, got, want)
		}
		if n.round(); n.since() != "" {
			t.Errorf("%s: told again", limit)
		}
		n.says("")
	}
}

// TestSelfTestOfAnotherLimit: a job that keeps the log pipe can write the line. The daemon restarts
// once; the GPU closes if the line comes again, and no account could reach that daemon.
func TestSelfTestOfAnotherLimit(t *testing.T) {
	line := "[2026-04-28 18:20:41.986 Server    70] Device pinned memory limit for device 0 set to 0x213000000 bytes"
	for name, c := range map[string]struct {
		bend   func(*node)
		closes string
	}{
		"it comes again":      {func(*node) {}, "process 70, logged a limit of 8908701696 bytes, want 8589934592: see who sets"},
		"it was a job's":      {func(n *node) { n.lines = nil }, ""},
		"an account came":     {func(n *node) { n.given++ }, ""},
		"an account was in":   {func(n *node) { n.given = 0 }, ""},
		"a job is on the GPU": {func(n *node) { n.busy[uuid(0)], n.given = true, 1 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.comes, n.lines = mps.Active, []string{line}
			if name == "an account was in" {
				n.given = -1
			}
			n.round()
			n.round()
			n.says("")
			if got := n.since(); got != "set, server of 0, log, end server 70, restart" {
				t.Errorf("%s: told %q", name, got)
			}
			c.bend(n)
			for range 3 {
				n.round()
			}
			n.says(c.closes)
			if n.busy[uuid(0)] = false; strings.Contains(n.since(), "restart") {
				t.Errorf("%s: restarted again", name)
			}
			for range 3 {
				n.round()
			}
			n.says(c.closes)
		})
	}
}

// A MIG device's daemon is not stopped under a job, and another layout sets daemons again.
func TestStop(t *testing.T) {
	n := newNode(t, 2).tested()
	n.busy[uuid(1)] = true
	if err := n.Stop(t.Context(), uuid(1)); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("under a job: %v", err)
	}
	n.busy[uuid(1)] = false
	if err := n.Stop(t.Context(), uuid(1)); err != nil || n.daemons[uuid(1)] != nil || n.daemons[uuid(0)] == nil || n.Settled() {
		t.Errorf("%v, %v", err, n.daemons)
	}
	n.since()
	if err := n.Stop(t.Context(), uuid(7)); err != nil || n.since() != "" {
		t.Errorf("no daemon: %v", err)
	}
}

// A daemon with other flags than the plan's is restarted once nobody uses it, and once only.
func TestFlagsAreCorrected(t *testing.T) {
	n := newNode(t, 1).tested()
	n.plan.GPUs[0].Tenancy.Policy = config.TenancyMultiUser
	n.busy[uuid(0)] = true
	n.round()
	n.says(`serves one account at a time, but tenancy = "multi-user": it restarts when the jobs there have ended`)
	n.busy[uuid(0)] = false
	n.deaf = true
	n.round()
	n.round()
	n.says("although tenancy = \"multi-user\" and it was restarted: see that gpuslot-mps@.service passes on $GPUSLOT_MPS_FLAGS")
	if got := n.since(); strings.Count(got, "restart") != 1 {
		t.Errorf("told %q", got)
	}
	n.deaf = false
	n.start(uuid(0)).limit = n.plan.GPUs[0].LargestRequest
	n.round()
	n.round()
	n.says("")
}

// TestPartitions: gpuslotd restarts a daemon with other partitions when no job uses it. It does so again only if an
// account had access to the daemon since.
func TestPartitions(t *testing.T) {
	n := newNode(t, 1)
	n.plan.GPUs[0].Threads = plan.Threads{Policy: config.ThreadsPartitioned}
	n.tested()
	if !n.plan.GPUs[0].Partitioned() {
		t.Fatal("the GPU is not partitioned")
	}
	n.why, n.other = "they are others", true
	n.busy[uuid(0)] = true
	n.round()
	n.says("they are others: its control daemon restarts when the jobs there have ended")
	n.busy[uuid(0)] = false
	n.round()
	n.round()
	n.says("they are others, although its control daemon was restarted: see its log")
	if got := n.since(); strings.Count(got, "restart") != 1 {
		t.Errorf("told %q", got)
	}
	for given, want := range map[int]int{1: 1, 3: 1, -1: 2} { // while one is in, each round
		n.given, n.busy[uuid(0)] = given, true
		if n.round(); strings.Contains(n.since(), "restart") {
			t.Error("restarted beside a job")
		}
		n.busy[uuid(0)] = false
		n.round()
		n.round()
		if got := n.since(); strings.Count(got, "restart") != want {
			t.Errorf("given %d: told %q", given, got)
		}
	}
	n.why, n.other = "", false
	n.round()
	n.says("")
}

// What keeps servers from starting is known before a job: from the daemon's log, or from
// its silence.
func TestSelfTestFails(t *testing.T) {
	n := newNode(t, 1)
	n.Own, n.lines = 5, []string{logStamp + "Server 337 exited with status 1"}
	n.round()
	n.round()
	n.says("no MPS server starts for uid 5, under which all its jobs run: it ended with status 1")
	if got := n.since(); got != "set, server of 5, log" {
		t.Errorf("told %q", got)
	}
	n.daemons[uuid(0)].servers = []mps.Server{{ID: process.ID{PID: 9}, UID: 5, Status: mps.Active}}
	n.round()
	n.says("")

	n = newNode(t, 1)
	n.Own = 5
	for range mostLooks + 2 {
		n.round()
	}
	n.says("none came, and the daemon's log gives no reason")
}

// TestKilledServer: a job can end the server of a self-test by a signal. The GPU is closed, the test is
// repeated after a minute, after two and so on, and a server that is well opens the GPU.
func TestKilledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.Own, n.lines = 5, []string{logStamp + "Server 337 exited with status 0"}
		n.round()
		n.round()
		for _, pause := range []time.Duration{time.Minute, 2 * time.Minute} {
			n.says("it ended without a reason, as by a signal; it is tried again at " + time.Now().Add(pause).Format(time.TimeOnly))
			n.since()
			time.Sleep(pause - time.Second)
			if n.round(); n.since() != "" {
				t.Error("tried again too early")
			}
			time.Sleep(time.Second)
			n.busy[uuid(0)] = true
			if n.round(); n.since() != "" {
				t.Error("tried beside a job")
			}
			n.busy[uuid(0)] = false
			if n.round(); n.since() != "server of 5" {
				t.Error("not tried again")
			}
			n.says("it ended without a reason, as by a signal")
			n.round()
		}
		time.Sleep(4 * time.Minute)
		n.comes = mps.Active
		n.round()
		n.round()
		n.says("")
	})
}

// A daemon that does not answer is restarted after a while, where no job and no process is.
func TestUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(*node)
		want bool
	}{
		"an idle GPU":           {func(*node) {}, true},
		"a job":                 {func(n *node) { n.busy[uuid(0)] = true }, false},
		"a job that is unknown": {func(n *node) { n.unknown = "x" }, false},
		"a process":             {func(n *node) { n.work = true }, false},
		"it answers":            {func(n *node) { n.daemons[uuid(0)].fault = "" }, false},
	} {
		n := newNode(t, 1).tested()
		at := time.Now()
		again := func(after time.Duration) int {
			n.round()
			n.restartUnanswered(t.Context(), n.now, at.Add(after))
			return strings.Count(n.since(), "restart")
		}
		n.daemons[uuid(0)].fault = mps.Wedged
		got := again(0)
		c.bend(n)
		got += again(unansweredFor - time.Second)
		if got > 0 {
			t.Errorf("%s: restarted at once", name)
		}
		if got := again(unansweredFor + time.Second); (got == 1) != c.want || got > 1 {
			t.Errorf("%s: restarted %d times", name, got)
		}
		n.daemons[uuid(0)].fault = mps.Wedged
		if got := again(unansweredFor + 2*time.Second); c.want && got > 0 {
			t.Errorf("%s: restarted once more at once", name)
		}
	}
}

// An operator's restart leaves a daemon with clients alone, unless it is forced.
func TestOperatorRestarts(t *testing.T) {
	n := newNode(t, 1).tested()
	g := &n.plan.GPUs[0]
	order := func(force bool) (text string, err error) {
		end := make(chan struct{})
		go func() {
			defer close(end)
			text, err = n.Keeper.Restart(t.Context(), g, force)
		}()
		select {
		case o := <-n.Orders():
			n.Carry(t.Context(), o, &n.plan)
		case <-end:
		}
		<-end
		return text, err
	}
	n.daemons[uuid(0)].servers = []mps.Server{{ID: process.ID{PID: 70}, Clients: []int{500, 501}}}
	if _, err := order(false); err == nil || !strings.Contains(err.Error(), "2 MPS clients (pids 500 501)") || n.since() != "" {
		t.Errorf("with clients: %v", err)
	}
	if text, err := order(true); err != nil || !strings.Contains(text, "restarted: pid") || n.since() != "end [500 501], restart" {
		t.Errorf("forced: %q, %v", text, err)
	}
	g.Mode = config.ModeWhole
	if _, err := order(true); err == nil || !strings.Contains(err.Error(), "it has no control daemon") {
		t.Errorf("a whole GPU: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Mode = config.ModeMPS
	if _, err := n.Keeper.Restart(ctx, g, true); err == nil || !strings.Contains(err.Error(), "busy with a round") {
		t.Errorf("a loop that does not come: %v", err)
	}
}

// A server that ends with clients is counted, one without is not, and each once.
func TestMoved(t *testing.T) {
	n := newNode(t, 1).tested()
	if n.Moved(n.now) {
		t.Error("nothing moved")
	}
	died := func(clients ...int) {
		t.Helper()
		n.daemons[uuid(0)].servers = []mps.Server{{ID: process.ID{PID: 80 + len(clients), Started: 1}, Status: mps.Active, Clients: clients}}
		n.busy[uuid(0)] = true
		n.round()
		n.daemons[uuid(0)].servers = nil
		if !n.Moved(n.now) || n.Moved(n.now) {
			t.Error("an end is not reported once")
		}
	}
	if died(); n.counts["died"] != 0 || strings.Contains(n.log.String(), "level=ERROR") {
		t.Errorf("a server without clients is counted, or an error: %s", &n.log)
	}
	if died(99); n.counts["died"] != 1 || n.noted[len(n.noted)-1] != "MPS server 81 ended with 1 clients." {
		t.Errorf("%d are counted, %q", n.counts["died"], n.noted)
	}
	if !strings.Contains(n.log.String(), `level=ERROR msg="MPS server ended"`) {
		t.Errorf("the end of a server with clients is no error: %s", &n.log)
	}
	n.daemons[uuid(0)].fault = mps.Suspended
	if !n.Moved(n.now) {
		t.Error("a suspended daemon did not move")
	}
	n.round()
	n.daemons[uuid(0)].fault = ""
	if !n.Moved(n.now) {
		t.Error("a daemon that goes on did not move")
	}
}

// TestJobsOfAFault: a fault is counted and noted once, with the jobs that were there since the round before.
func TestJobsOfAFault(t *testing.T) {
	n := newNode(t, 2).tested()
	first := jobs.Job{Starter: starter.Starter{Slot: "slot1_1@wn"}, GPU: uuid(0), ID: "1.0", Owner: "alice"}
	n.owners[500] = first
	n.owners[501] = jobs.Job{Starter: starter.Starter{Slot: "slot1_2@wn"}, GPU: uuid(0)}
	n.owners[600] = jobs.Job{Starter: starter.Starter{Slot: "slot1_3@wn"}, GPU: uuid(1), ID: "3.0", Owner: "bob"}
	n.round()
	for i, c := range []struct{ name, there string }{
		{"it is there", "1.0 on slot1_1 of alice, slot1_2"},
		{"it has ended since the round before", "1.0 on slot1_1 of alice, slot1_2"},
		{"it had ended in the round before", "slot1_2"},
	} {
		n.noted = nil
		if i == 1 {
			delete(n.owners, 500)
			n.ended, n.endedAt = []jobs.Job{first}, time.Now()
		}
		n.daemons[uuid(0)].servers = serverIn(mps.Faulted, 500)
		for range 3 {
			n.round()
		}
		n.says("a client met a fatal GPU error, and it serves nobody until 1 clients have ended;")
		noted := strings.Join(n.noted, "\n")
		if n.counts["fault"] != i+1 || strings.Count(noted, "met a fatal GPU error. Jobs there: "+c.there+".") != 1 {
			t.Errorf("%s: %d faults are counted, noted: %s", c.name, n.counts["fault"], noted)
		}
		n.daemons[uuid(0)].servers = serverIn(mps.Active)
		n.round()
	}
}

// TestFaultsOfTwoGPUs: each server in FAULT is counted in the same round, also where no log is read.
func TestFaultsOfTwoGPUs(t *testing.T) {
	n := newNode(t, 2).tested()
	n.Logs = nil
	for i := range 2 {
		n.daemons[uuid(i)].servers = serverIn(mps.Faulted, 500)
	}
	if n.round(); n.counts["fault"] != 2 {
		t.Errorf("%d faults are counted", n.counts["fault"])
	}
}

// A PID in the daemon's list is no reason to kill a process that is in no slot of the GPU, or
// that is a later one.
func TestLeftoverOfAnotherIsNotKilled(t *testing.T) {
	n := newNode(t, 2)
	pid, ended := sleeps(t)
	refused := func(name string, later bool) {
		t.Helper()
		err := n.killClient(uuid(0), pid, time.Now())
		if err == nil || errors.Is(err, os.ErrProcessDone) != later {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		select {
		case <-ended:
			t.Fatalf("%s was killed", name)
		default:
		}
	}
	refused("no job's", false)
	n.owners[pid] = jobs.Job{Starter: starter.Starter{Slot: "slot1_1"}, GPU: uuid(1)}
	refused("a job's, of another GPU", false)
	n.owners[pid] = jobs.Job{Starter: starter.Starter{Slot: "slot1_1"}, GPU: uuid(0)}
	n.started[pid] = 1 << 60
	refused("a later process", true)
	n.started[pid] = unanswered
	refused("one of which it is not known", false)
	n.started[pid] = 1
	if err := n.killClient(uuid(0), pid, time.Now()); err != nil {
		t.Fatalf("the GPU's own: %v", err)
	}
	<-ended
}

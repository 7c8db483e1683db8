package daemons

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestPace: rounds come soon while jobs wait for an answer, a server or a self-test, and not for longer than that.
func TestPace(t *testing.T) {
	now := time.Unix(10000, 0)
	fault := func(f mps.Fault) State { return State{Err: &mps.Error{Fault: f}} }
	tried := func(ago time.Duration) State { return State{SelfTest: SelfTest{asked: now.Add(-ago)}} }
	over := tried(0)
	over.SelfTest.over = true
	for name, c := range map[string]struct {
		state State
		want  time.Duration
	}{
		"well": {State{}, time.Minute}, "busy": {fault(mps.Busy), time.Second}, "wedged": {fault(mps.Wedged), time.Second},
		"gone":              {fault(mps.Gone), time.Minute},
		"in FAULT":          {State{Servers: ServerState{faulted: now}}, 3 * time.Second},
		"waiting":           {State{Servers: ServerState{waiting: now}}, 3 * time.Second},
		"being tested":      {tried(waitingTooLong - 1), time.Second},
		"tested for long":   {tried(waitingTooLong), time.Minute},
		"tested":            {over, time.Minute},
		"busy and in FAULT": {State{Err: &mps.Error{Fault: mps.Busy}, Servers: ServerState{faulted: now}}, time.Second},
	} {
		states := map[gpu.UUID]State{uuid(0): c.state, uuid(1): {}}
		if got := Pace(states, time.Minute, now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := Pace(states, time.Millisecond, now); got != time.Millisecond {
			t.Errorf("%s: more than the most: %s", name, got)
		}
	}
}

// TestOwns: the daemon is its own, and so is its server without clients.
func TestOwns(t *testing.T) {
	s := State{Checked: mps.Checked{PID: 7, States: []mps.Server{{ID: process.ID{PID: 70}}, {ID: process.ID{PID: 71}, Clients: []int{1}}}}}
	for pid, want := range map[int]bool{7: true, 70: true, 71: false, 1: false, 0: false} {
		if got := s.Owns(pid); got != want {
			t.Errorf("process %d: %t", pid, got)
		}
	}
}

// TestSelfTestTexts: what is known of a server that is not there, of this daemon.
func TestSelfTestTexts(t *testing.T) {
	daemon, at := process.ID{PID: 7}, time.Unix(10000, 0)
	of := subject{daemon: daemon}
	for want, c := range map[string]SelfTest{
		"not provable without a GPU (no device)": {of: of, noDevice: true, failure: "no device"},
		"does not start (tried at":               {of: of, asked: at, failure: "no memory"},
		"no server yet (one is being tried)":     {of: of, asked: at, well: at.Add(-1)},
		"starts with the first job (last":        {of: of, asked: at, well: at},
		"no server yet (starts with":             {failure: "of another daemon"},
	} {
		if got := c.text(daemon); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSelfTestIsOver: a job's own server, or one that came and went, ends the test; the log is read else.
func TestSelfTestIsOver(t *testing.T) {
	at := time.Unix(10000, 0)
	of := subject{uid: 1000}
	server := func(uid uint32, clients ...int) mps.Checked {
		return mps.Checked{States: []mps.Server{{ID: process.ID{PID: 70}, UID: uid, Status: mps.Active, Clients: clients}}}
	}
	for name, c := range map[string]struct {
		well    time.Time
		checked mps.Checked
		over    bool
		step    step
		looks   int
	}{
		"another account's": {time.Time{}, server(1001), true, rest, 0}, "with clients": {time.Time{}, server(1000, 1), true, rest, 0},
		"its own":           {time.Time{}, server(1000), false, end, 0},
		"it came, and went": {at, mps.Checked{}, true, rest, 0},
		"it has not come":   {at.Add(-1), mps.Checked{}, false, read, 1},
	} {
		next, step := SelfTest{of: of, asked: at, well: c.well}.next(of, false, c.checked, true)
		if next.over != c.over || step != c.step || next.looks != c.looks {
			t.Errorf("%s: over %t, %v after %d looks", name, next.over, step, next.looks)
		}
	}
}

// TestTestAccount: whose server is tested, and whether it stays for the jobs.
func TestTestAccount(t *testing.T) {
	n := &Node{Accounts: map[string]starter.Account{"alice": {UID: 1000, Known: true}}}
	for name, c := range map[string]struct {
		tenancy   plan.Tenancy
		own, uid  uint32
		stays, ok bool
	}{
		"many users":     {plan.Tenancy{Policy: config.TenancyMultiUser}, 0, 0, true, true},
		"a common one":   {plan.Tenancy{Policy: config.TenancyCommon, User: "alice"}, 0, 1000, true, true},
		"an unknown one": {plan.Tenancy{Policy: config.TenancyCommon, User: "bob"}, 0, 0, true, false},
		"anyone's":       {plan.Tenancy{Policy: config.TenancyOneAtATime}, 0, 0, false, true},
		"the agent's":    {plan.Tenancy{Policy: config.TenancyOneAtATime}, 1000, 1000, true, true},
	} {
		g := &plan.GPU{Mode: config.ModeMPS, Tenancy: c.tenancy}
		if uid, stays, ok := testAccount(n, g, c.own); uid != c.uid || stays != c.stays || ok != c.ok {
			t.Errorf("%s: %d, %t, %t", name, uid, stays, ok)
		}
	}
}

// TestNoSelfTest: a daemon that is not well, or is not a shared GPU's, is not asked for a server.
func TestNoSelfTest(t *testing.T) {
	for name, set := range map[string]func(*State){
		"well": nil, "an error": func(s *State) { s.Err = errors.New("no") }, "none": func(s *State) { s.Checked.PID = 0 },
		"other flags": func(s *State) { s.Otherwise = "other flags" },
	} {
		n := newNode(t, 2)
		n.comes = mps.Active
		n.start(uuid(0))
		n.since()
		s := State{Checked: mps.Checked{PID: 7, At: time.Now()}}
		if set != nil {
			set(&s)
		}
		n.testServers(t.Context(), &Node{Plan: &n.plan, Deadline: time.Second}, map[gpu.UUID]State{uuid(0): s})
		if asked := n.since() == "server of 0"; asked != (set == nil) {
			t.Errorf("%s: asked %t", name, asked)
		}
	}
}

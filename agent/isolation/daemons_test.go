package isolation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/test/proctree"
)

const condorService = "/system.slice/condor.service"

// cgroup makes one of a node.
func (n *node) cgroup(p string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, p), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// on is the rule of a cgroup.
func (n *node) on(p string) (devices.Rule, bool) {
	r, ok := n.wall.by[filepath.Join(n.root, p)]
	return r, ok
}

// TestOutsideOfJobs: HTCondor's daemons and users' programs get a rule that opens nothing, except to root. It goes when
// the GPU is not divided any more, also one of an earlier agent.
func TestOutsideOfJobs(t *testing.T) {
	n := newNode(t)
	n.job(100, 3)
	user := starter.UserCgroups[0]
	n.cgroup(condorService)
	n.cgroup(user)
	n.Round(now(), time.Now())
	for _, p := range []string{condorService, user} {
		if r, ok := n.on(p); !ok || len(r.Own) > 0 || !slices.Equal(r.Spared, []uint32{0}) {
			t.Errorf("%s: %+v, %t", p, r, ok)
		}
	}
	if len(n.Warnings()) > 0 || strings.Count(n.said.String(), "are closed to programs outside of jobs") != 2 {
		t.Errorf("warnings %q, said %s", n.Warnings(), n.said)
	}
	whole := now()
	whole.Instances = nil
	if n.Round(whole, time.Now()); len(n.wall.by) != 1 { // that of the job, until it ends
		t.Errorf("not divided: %v", n.wall.by)
	}
	n.wall.by[filepath.Join(n.root, condorService)] = devices.Rule{}
	n.opened = false // an agent that starts
	if n.Round(whole, time.Now()); len(n.wall.by) != 1 || !n.opened {
		t.Errorf("of an earlier agent: %v", n.wall.by)
	}
	if n.Round(now(), time.Now()); len(n.wall.by) != 3 {
		t.Errorf("divided again: %v", n.wall.by)
	}
}

// TestLooksOneByOne: a look that began before the node was divided does not take back what one after it closes.
func TestLooksOneByOne(t *testing.T) {
	n := newNode(t)
	user := starter.UserCgroups[0]
	n.cgroup(user)
	whole := now()
	whole.Instances = nil
	began, divided := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(divided)
		<-began
		n.Look(now, func() {})
	}()
	n.Look(func() Conditions {
		close(began)
		select {
		case <-divided: // it was let in
		case <-time.After(100 * time.Millisecond):
		}
		return whole
	}, func() {})
	<-divided
	if _, ok := n.on(user); !ok {
		t.Error("users' programs are open")
	}
}

// TestBetween: while layouts change, what was divided before and what is after count as divided.
func TestBetween(t *testing.T) {
	after := Instances{uuid(1): nil, uuid(2): nil, mig(3): {{GPU: uuid(2), ID: 3}}}
	after.Divide([]gpu.UUID{uuid(2)})
	got := Between(InstancesOnly([]gpu.UUID{uuid(1)}), after)
	if want := []gpu.UUID{uuid(1), uuid(2)}; !slices.Equal(got.Divided(), want) || len(got[mig(3)]) != 1 {
		t.Errorf("divided are %v of %v, want %v", got.Divided(), got, want)
	}
	if len(after.Divided()) != 1 || len(Between(nil, nil).Divided()) != 0 {
		t.Error("it changes what it is given, or divides what nobody did")
	}
}

// TestWithoutMinors: where the driver lists no device nodes of MIG devices no job is promised anything, and a warning
// says why.
func TestWithoutMinors(t *testing.T) {
	n := newNode(t)
	file := filepath.Join(n.proc.Root, "driver/nvidia-caps/mig-minors")
	for _, c := range []struct {
		change func() error
		why    string
	}{
		{func() error { return os.Truncate(file, 0) }, devices.ErrNoCapabilities.Error()},
		{func() error { return os.Remove(file) }, file},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if n.Round(now(), time.Now()); n.Enforced() || !strings.Contains(strings.Join(n.Warnings(), ""), c.why) {
			t.Errorf("enforced %t, %q, want %s", n.Enforced(), n.Warnings(), c.why)
		}
	}
}

// TestJobBesideDaemons: where a job runs in the cgroup of HTCondor's daemons their rule goes and stays away, with a
// warning, until jobs run elsewhere again.
func TestJobBesideDaemons(t *testing.T) {
	n := newNode(t)
	n.job(100, 3)
	n.cgroup(condorService)
	n.Round(now(), time.Now())
	in := starter.Caller{Leaf: starter.Leaf{Path: condorService + "/job"}}
	if err := n.Starts(now(), in); err != nil {
		t.Error(err)
	}
	if _, ok := n.on(condorService); ok {
		t.Error("the job loses its own nodes")
	}
	if err := n.CloseAtStart(now(), starter.Starter{}, nil, in.Leaf.Path); err != nil {
		t.Errorf("without a slice nothing is promised: %v", err)
	}
	outside{n.Nodes, now()}.divided(n.Nodes.proc.Read)
	if _, ok := n.on(condorService); ok || !strings.Contains(strings.Join(n.Warnings(), ""), errDaemonsAndJobs.Error()) {
		t.Errorf("a rule: %t, warnings %q", ok, n.Warnings())
	}
	if err := n.Starts(now(), starter.Caller{Leaf: starter.Leaf{Path: "/htcondor/job"}}); err != nil || len(n.wake) != 1 {
		t.Errorf("%v, woken %d times", err, len(n.wake))
	}
	n.Round(now(), time.Now())
	if _, ok := n.on(condorService); !ok || strings.Contains(strings.Join(n.Warnings(), ""), errDaemonsAndJobs.Error()) {
		t.Errorf("a rule: %t, warnings %q", ok, n.Warnings())
	}
}

// TestUsersAndJobs: where HTCondor runs in a user's session its jobs are among the users' programs, and stay open.
func TestUsersAndJobs(t *testing.T) {
	n := newNode(t)
	n.job(100, 3)
	user := starter.UserCgroups[0]
	n.cgroup(user)
	n.proc.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: user + "/session.scope"})
	n.Round(now(), time.Now())
	if _, ok := n.on(user); ok || !strings.Contains(strings.Join(n.Warnings(), ""), errUsersAndJobs.Error()) {
		t.Errorf("a rule: %t, warnings %q", ok, n.Warnings())
	}
}

// TestStartsFromElsewhere: where jobs have cgroups of their own, who asks from another place does not start.
func TestStartsFromElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*node, *Conditions, *starter.Caller)
		want error
	}{
		"from another place": {func(*node, *Conditions, *starter.Caller) {}, errNotInJob},
		"of version 1":       {func(_ *node, _ *Conditions, c *starter.Caller) { c.Hook = false }, nil},
		"observed":           {func(_ *node, is *Conditions, _ *starter.Caller) { is.Observed = true }, nil},
		"not divided":        {func(_ *node, is *Conditions, _ *starter.Caller) { is.Instances = nil }, nil},
		"not enforced":       {func(n *node, _ *Conditions, _ *starter.Caller) { n.kernel = nil }, nil},
		"no cgroups":         {func(_ *node, is *Conditions, _ *starter.Caller) { is.JobCgroups = false }, nil},
	} {
		n := newNode(t)
		s := n.job(100, 3)
		is, caller := now(), starter.Caller{Hook: true, Starter: s, Cgroup: condorService}
		c.set(n, &is, &caller)
		if err := n.Starts(is, caller); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := newNode(t)
	s := n.job(100, 3)
	n.cgroup(condorService)
	n.Round(now(), time.Now())
	is := now()
	is.JobCgroups = false
	for _, elsewhere := range []bool{true, false} {
		caller := starter.Caller{Hook: true, Starter: s, Cgroup: condorService}
		if elsewhere {
			caller.Cgroup = "/user.slice"
		}
		err := n.Starts(is, caller)
		if _, ok := n.on(condorService); err != nil || ok != elsewhere {
			t.Errorf("%s: a rule %t, %v", caller.Cgroup, ok, err)
		}
	}
}

// TestJobWithoutProcess: after a while it is a warning, once, and no job that has its rule is one.
func TestJobWithoutProcess(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	n.job(101, 4)
	n.proc.End(s.PID + 1000)
	for i, late := range []time.Duration{0, LateAfter + time.Second, 2 * LateAfter} {
		if n.Round(now(), time.Now().Add(late)); n.counts.of(Missing) != min(i, 1) {
			t.Errorf("after %s: counted %v", late, n.counts.by)
		}
	}
	if n.counts.of(Missing) != 1 || len(n.Warnings()) != 1 || !strings.Contains(n.Warnings()[0], errNoProcess.Error()) {
		t.Errorf("counted %v, warnings %q", n.counts.by, n.Warnings())
	}
	n.proc.End(1101)
	if n.Round(now(), time.Now().Add(2*LateAfter)); n.counts.of(Missing) != 1 {
		t.Errorf("a job that had its rule: counted %v", n.counts.by)
	}
	n.proc.End(s.PID)
	if n.Round(now(), time.Now()); len(n.Warnings()) > 0 {
		t.Errorf("after its end: %q", n.Warnings())
	}
}

// TestRunOfRounds: each round comes before what follows it, and a wake begins one.
func TestRunOfRounds(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	n.Run(ctx, now, func() {
		if n.rule(s) != own(3) {
			t.Error("no round was made")
		}
		n.Wake()
		if rounds++; rounds == 3 {
			cancel()
		}
	})
	if rounds != 3 {
		t.Errorf("%d rounds", rounds)
	}
}

// TestSliceThatCannotBeLookedAt: no job starts without its rule.
func TestSliceThatCannotBeLookedAt(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	top := filepath.Join(n.root, "htcondor")
	if err := errors.Join(os.RemoveAll(top), os.WriteFile(top, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := n.CloseAtStart(now(), s, n.table.HeldBy(s), n.leaf(s)); err == nil || errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(top); err != nil {
		t.Fatal(err)
	}
	if err := n.CloseAtStart(now(), s, n.table.HeldBy(s), n.leaf(s)); !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
}

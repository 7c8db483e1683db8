package status

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestEachErrorAndWarning: each state has its own sentences, and no others.
func TestEachErrorAndWarning(t *testing.T) {
	for name, c := range map[string]struct {
		set              func(*Snapshot)
		errors, warnings []string // how they begin
	}{
		"nothing": {set: func(*Snapshot) {}},
		"closed":  {func(s *Snapshot) { s.Closed = "why" }, nil, []string{"No GPU takes jobs: why"}},
		"closed and observed": {func(s *Snapshot) {
			s.Closed, s.Plan.Observe = "why", true
		}, nil, []string{"The GPUs are not observed now: why"}},
		"the startd": {func(s *Snapshot) { s.Startds.Err = errors.New("no answer") }, nil,
			[]string{"The startd does not tell of its slots, so budgets rest"}},
		"the startd of an observed node": {func(s *Snapshot) {
			s.Startds.Err, s.Plan.Observe = errors.New("no answer"), true
		}, nil, []string{"The startd does not tell of its slots, so new jobs are not known"}},
		"unreadable": {func(s *Snapshot) {
			s.Startds.Unreadable = []string{"slot1"}
		}, nil, []string{"What a slot has is not known: slot1;"}},
		"a change": {func(s *Snapshot) {
			s.Startds.Changes = []api.Change{{Says: "It is to restart."}}
		}, nil, []string{"It is to restart."}},
		"overridden": {func(s *Snapshot) {
			s.Overridden = []condor.Override{{Says: "A is harmless"}, {Says: "B breaks", Breaks: condor.BreaksPolicy}}
		}, []string{"B breaks."}, []string{"A is harmless."}},
		"not root": {func(s *Snapshot) { s.NotRoot = true }, nil, []string{"gpuslotd does not run as root"}},
		"silent":   {func(s *Snapshot) { s.Silent = time.Minute }, []string{"No GPU takes jobs: the startd has not asked for 1m0s"}, nil},
		"silent and overridden": {func(s *Snapshot) {
			s.Silent, s.Overridden = time.Minute, []condor.Override{{Says: "B breaks", Breaks: condor.BreaksPolicy}}
		}, []string{"No GPU takes jobs: the startd has not asked for 1m0s which ones do.", "B breaks."}, nil},
	} {
		s := &Snapshot{Startds: &startd.Said{}}
		c.set(s)
		st := s.Status()
		if begin := func(say, with string) bool { return strings.HasPrefix(say, with) }; !slices.EqualFunc(st.Errors, c.errors, begin) ||
			!slices.EqualFunc(st.Warnings, c.warnings, begin) {
			t.Errorf("%s: errors %q, warnings %q", name, st.Errors, st.Warnings)
		}
		if hint := strings.Contains(strings.Join(st.Errors, ""), "STARTD_CRON_JOBLIST"); hint != (name == "silent") {
			t.Errorf("%s: errors %q", name, st.Errors)
		}
	}
}

// TestStatusOfOddPlans: what an observed and a withdrawn plan leave out, and what is absent.
func TestStatusOfOddPlans(t *testing.T) {
	s := &Snapshot{Startds: &startd.Said{}}
	s.Applied, s.Plan.Absent = time.Unix(1, 0), []gpu.UUID{one}
	got := s.Status()
	if got.PlanApplied.IsZero() || !slices.Equal(got.Absent, []string{string(one)}) || got.MPS == nil {
		t.Errorf("%+v", got)
	}
	s.Plan.Observe, s.Phase.Phase = true, closures.Reverted
	if got := s.Status(); !got.PlanApplied.IsZero() || got.MPS != nil {
		t.Errorf("%+v", got)
	}
}

// TestDaemonInStatus: its last proof is shown, and its PID while that holds.
func TestDaemonInStatus(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	uid := uint32(1000)
	server := mps.Server{ID: process.ID{PID: 8}, UID: uid, Status: mps.Active, Clients: []int{1, 2}}
	f := newFake(now)
	f.node.Daemons = map[gpu.UUID]daemons.State{one: {
		Wanted: mps.Wanted{GPU: one, Limit: 2048}, Checked: mps.Checked{PID: 7, At: now, States: []mps.Server{server}},
	}}
	got := f.take(now).Status().GPUs[0]
	want := []api.StatusServer{{PID: 8, UID: &uid, Status: string(mps.Active), Clients: 2}}
	if got.DaemonPID != 7 || !got.ProvedAt.Equal(now) || got.LimitMiB != 2048 || got.LimitReadBack == "" ||
		!strings.Contains(got.Server, "pid 8") || cmp.Diff(want, got.Servers) != "" || got.Device != "" {
		t.Errorf("%+v", got)
	}
	f.health.Check = errors.New("gone")
	if got := f.take(now).Status().GPUs[0]; got.DaemonPID != 0 || !got.ProvedAt.Equal(now) {
		t.Errorf("%+v", got)
	}
	f.node.Daemons = nil
	f.node.Plan.GPUs[0].Place, f.node.Plan.GPUs[0].Device = "3g.20gb@4", "MIG-1"
	if got := f.take(now).Status().GPUs[0]; !got.ProvedAt.IsZero() || got.Server != "" || got.Device != "MIG-1" {
		t.Errorf("%+v", got)
	}
}

// TestStrangersOfTimeSlices: on a GPU without MPS a job's own processes are no strangers.
func TestStrangersOfTimeSlices(t *testing.T) {
	g := GPU{GPU: &plan.GPU{Mode: config.ModeTimeSlice}}
	g.Uses.Strangers = []api.StatusProcess{{PID: 1, Slot: "slot1_1"}, {PID: 2}}
	if got := g.status().Strangers; len(got) != 1 || got[0].PID != 2 {
		t.Errorf("%+v", got)
	}
	g.Mode = config.ModeMPS
	if got := g.status().Strangers; len(got) != 2 {
		t.Errorf("with MPS: %+v", got)
	}
}

// TestEnforcedWithoutJobs: what would enforce a budget on a GPU without jobs.
func TestEnforcedWithoutJobs(t *testing.T) {
	for want, g := range map[string]plan.GPU{
		"": {Mode: config.ModeObserve, Parent: one}, jobs.EnforcedByMIG: {Mode: config.ModeMIG, Parent: one},
		jobs.EnforcedByWhole: {Mode: config.ModeWhole}, jobs.EnforcedByCgroup: {Mode: config.ModeTimeSlice},
		jobs.EnforcedByNone: {Mode: config.ModeMPS},
	} {
		if got := (&GPU{GPU: &g}).enforced(); got != want {
			t.Errorf("%s: %q, want %q", g.Mode, got, want)
		}
	}
	g := GPU{GPU: &plan.GPU{Mode: config.ModeTimeSlice}, Jobs: []Job{{Enforced: jobs.EnforcedByNone}}}
	if got := g.enforced(); got != jobs.EnforcedByNone {
		t.Errorf("with a job whose limit is not set: %q", got)
	}
}

// TestDaemonUp: it works if each of three facts is so, and is wanted on a device that is there.
func TestDaemonUp(t *testing.T) {
	for name, c := range map[string]struct {
		set        func(*Snapshot, *GPU)
		up, wanted bool
	}{
		"well":          {func(*Snapshot, *GPU) {}, true, true},
		"an error":      {func(_ *Snapshot, g *GPU) { g.Daemon.Err = errors.New("no") }, false, true},
		"none":          {func(_ *Snapshot, g *GPU) { g.Daemon.Checked.PID = 0 }, false, true},
		"gone":          {func(_ *Snapshot, g *GPU) { g.Health.Check = errors.New("gone") }, false, true},
		"another mode":  {func(_ *Snapshot, g *GPU) { g.Mode = config.ModeTimeSlice }, true, false},
		"a quiet node":  {func(s *Snapshot, _ *GPU) { s.Phase.Phase = closures.Quiesced }, true, false},
		"no device yet": {func(_ *Snapshot, g *GPU) { g.Place = "1g.5gb@0" }, true, false},
		"a device":      {func(_ *Snapshot, g *GPU) { g.Place, g.Device = "1g.5gb@0", "MIG-1" }, true, true},
	} {
		s, g := &Snapshot{}, &GPU{GPU: &plan.GPU{Mode: config.ModeMPS}}
		g.Daemon.Checked.PID = 7
		c.set(s, g)
		if up, wanted := s.DaemonUp(g); up != c.up || wanted != c.wanted {
			t.Errorf("%s: up %t, wanted %t", name, up, wanted)
		}
	}
}

// TestGeneralReasons: each cause has its own words, the one that concerns more first.
func TestGeneralReasons(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*Snapshot, *GPU)
		want string
	}{
		"no cause":       {func(*Snapshot, *GPU) {}, "It takes no new jobs for now."},
		"the whole node": {func(s *Snapshot, _ *GPU) { s.Closed = "why" }, "The whole node takes no new jobs."},
		"its own side": {func(_ *Snapshot, g *GPU) {
			g.Closures = closures.List{{Owner: OwnerElastic}, {Owner: closures.OwnerAgent}}
		}, "It takes no new jobs for now."},
		"a client's fault": {func(_ *Snapshot, g *GPU) { g.Fault.Class = faults.ClosedForServer }, "A client met a fatal GPU error"},
		"a client's fault without MPS": {func(_ *Snapshot, g *GPU) {
			g.Fault.Class, g.Mode = faults.ClosedForServer, config.ModeTimeSlice
		}, "It takes no new jobs for now."},
		"broken without MPS": {func(_ *Snapshot, g *GPU) {
			g.Fault.Class, g.Mode = faults.ClosedBroken, config.ModeTimeSlice
		}, "Its hardware is broken"},
		"an unproven daemon": {func(_ *Snapshot, g *GPU) { g.Daemon.Otherwise = "other flags" }, "Its control daemon is not proven"},
		"a daemon that went": {func(_ *Snapshot, g *GPU) { g.Health.Check = errors.New("gone") }, "Its control daemon is not proven"},
		"verified":           {func(_ *Snapshot, g *GPU) { g.Verifying = true }, "A CUDA client tries it now."},
	} {
		s, g := &Snapshot{At: time.Unix(1_800_000_000, 0)}, &GPU{GPU: &plan.GPU{UUID: one, Mode: config.ModeMPS}, Reason: "closed"}
		s.Present = map[gpu.UUID]bool{one: true}
		c.set(s, g)
		if got := s.GeneralReason(g); !strings.HasPrefix(got, c.want) || !strings.HasSuffix(got, "says more.") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestMonitorAnswer: the reserved GPU takes larger requests only, a change has its own time, and an
// observed node says nothing.
func TestMonitorAnswer(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	f := newFake(now)
	f.verified = &api.Verification{OK: true}
	f.node.Below = map[gpu.UUID]plan.GPU{one: {Pool: 5, Resources: plan.Resources{CPUs: 6, Memory: 7}}}
	f.said.Changes = []api.Change{{Says: "It is to restart."}}
	var m Monitor
	got := m.Answer(f.take(now), "another", 9000)
	want := []api.Acceptance{{UUID: string(one), Accept: true, AboveMiB: 5, AboveCPUs: 6, AboveMemoryMiB: 7, Time: now,
		Verified: &f.verified.OK, Pending: "It is to restart.", Since: now}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := m.Answer(f.take(now.Add(time.Second)), one, 9000); got[0].LeastMiB != 9000 || !got[0].Since.Equal(now.Add(time.Second)) {
		t.Errorf("reserved: %+v", got)
	}
	if got := m.Answer(f.take(now.Add(2*time.Second)), one, 9000); !got[0].Since.Equal(now.Add(time.Second)) {
		t.Errorf("unchanged: %+v", got)
	}
	f.node.Plan.GPUs = nil
	if got := m.Answer(f.take(now), one, 9000); len(got) != 1 || got[0].Accept {
		t.Errorf("a GPU that left: %+v", got)
	}
	f.node.Plan.Observe = true
	if got := m.Answer(f.take(now), one, 9000); got == nil || len(got) > 0 {
		t.Errorf("observed: %+v", got)
	}
}

// TestWholeInTheMonitor: only a GPU that jobs have alone by the plan is in the startd's slot for whole ones.
func TestWholeInTheMonitor(t *testing.T) {
	for _, c := range []struct {
		plan.GPU
		whole bool
	}{
		{plan.GPU{Mode: config.ModeWhole}, true}, {plan.GPU{Mode: config.ModeWhole, Elastic: true}, false},
		{plan.GPU{Mode: config.ModeMIG, Parent: one}, false}, {plan.GPU{Mode: config.ModeMPS}, false},
	} {
		s := &Snapshot{GPUs: []GPU{{GPU: &c.GPU}}, Startds: &startd.Said{}}
		s.Planned = true
		if got := s.Acceptances()[0].Whole; got != c.whole {
			t.Errorf("%+v: %t", c.GPU, got)
		}
	}
}

// TestAnyChangeHasItsTime: the monitor sends to the collector at once whatever START rests on.
func TestAnyChangeHasItsTime(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for name, change := range map[string]func(*api.Acceptance){
		"least": func(a *api.Acceptance) { a.LeastMiB = 1 }, "taken": func(a *api.Acceptance) { a.TakenMiB = 1 },
		"owners": func(a *api.Acceptance) { a.ClosedBy = []string{"operator"} }, "above": func(a *api.Acceptance) { a.AboveMiB = 1 },
		"CPUs": func(a *api.Acceptance) { a.AboveCPUs = 1 }, "memory": func(a *api.Acceptance) { a.AboveMemoryMiB = 1 },
		"accept": func(a *api.Acceptance) { a.Accept = true }, "reason": func(a *api.Acceptance) { a.Reason = "why" },
	} {
		var m Monitor
		m.date([]api.Acceptance{{UUID: "GPU-a", Time: start}})
		now := []api.Acceptance{{UUID: "GPU-a", Time: start.Add(time.Second)}}
		change(&now[0])
		if m.date(now); !now[0].Since.Equal(now[0].Time) {
			t.Errorf("%s: since %v", name, now[0].Since)
		}
	}
}

// TestPublicNamesNobody: an account sees its own job, of another's only the slot, and no more about a GPU than
// why it is closed in general.
func TestPublicNamesNobody(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	for uid, slot := range map[uint32]string{1000: "slot1_1", 1001: "slot1_2"} {
		j := jobIn(slot)
		j.Account, j.Starter.PID, j.Owner = starter.Account{Known: true, UID: uid}, int(uid), "alice"
		f.table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{j} })
	}
	p := Public{Look: f.take}
	for uid, own := range map[uint32]string{1000: "slot1_1", 1001: "slot1_2", 1002: "none"} {
		g := p.Status(uid).GPUs[0]
		if !g.Accept && g.Reason == "" || len(g.Jobs) != 2 {
			t.Errorf("uid %d: %+v", uid, g)
		}
		for _, j := range g.Jobs {
			if named := j.ID == "7.0" && j.Account == "alice"; named != (j.Slot == own) || named == (j.ID == "") {
				t.Errorf("uid %d sees %+v", uid, j)
			}
		}
	}
	f.closed = closures.List{{GPU: one, Owner: "operator", Reason: "mallory's job", Since: now}}
	p = Public{Look: f.take}
	if g := p.Status(1000).GPUs[0]; g.Accept || !strings.HasPrefix(g.Reason, "Closed by operator.") {
		t.Errorf("closed: %+v", g)
	}
}

// TestHereShowsTheCallersJob: its GPUs, how many others are on them, and that it is to be held.
func TestHereShowsTheCallersJob(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	mine, other := jobIn("slot1_1"), jobIn("slot1_2")
	other.Starter.ID = process.ID{PID: 200, Started: 1}
	f.table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{mine, other} })
	f.table.Hold(mine.Starter, api.Hold{Reason: "too much"})
	got := f.reader().Here(starter.Caller{Starter: mine.Starter}, now)
	if got.Slot != "slot1_1" || got.Job != "7.0" || got.Hold != "too much" || len(got.GPUs) != 1 || got.GPUs[0].Neighbours != 1 {
		t.Errorf("%+v", got)
	}
	got = f.reader().Here(starter.Caller{Starter: starter.Starter{Slot: "slot1_7"}}, now)
	if got.Slot != "slot1_7" || got.Job != "" || got.GPUs == nil || len(got.GPUs) != 0 {
		t.Errorf("of a slot without a job: %+v", got)
	}
}

// entered counts how often the startds are to be asked soon.
type entered struct {
	*fake
	times int
}

func (e *entered) Entered() { e.times++ }

// TestLookAsksAgain: after bad news of the startd, and only then, it is asked again.
func TestLookAsksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		said startd.Said
		want int
	}{
		"well": {}, "an error": {startd.Said{Err: errors.New("no")}, 1},
		"a change": {startd.Said{Changes: []api.Change{{}}}, 1},
	} {
		f := newFake(time.Now())
		f.said = c.said
		r, e := f.reader(), &entered{fake: f}
		r.Startds = e
		if s := r.Look(time.Now()); e.times != c.want || len(s.GPUs) != 1 {
			t.Errorf("%s: asked %d times", name, e.times)
		}
	}
}

// TestSilenceIsNotExpected: each of these is a reason not to expect the startd's questions.
func TestSilenceIsNotExpected(t *testing.T) {
	now := time.Now()
	for name, set := range map[string]func(*fake){
		"it asks for nothing": nil,
		"no plan":             func(f *fake) { f.node.Planned = false },
		"not written":         func(f *fake) { f.node.Written = false },
		"observed":            func(f *fake) { f.node.Plan.Observe = true },
		"no GPUs":             func(f *fake) { f.node.Plan.GPUs = nil },
		"not managed":         func(f *fake) { f.node.Config.HTCondor.Manage = false },
		"out of service":      func(f *fake) { f.phase.Phase = closures.Quiesced },
		"no answer":           func(f *fake) { f.said.Err = errors.New("no") },
		"no answer yet":       func(f *fake) { f.said.Answers = time.Time{} },
	} {
		f := newFake(now)
		f.node.Written, f.said.Answers = true, now.Add(-2*time.Minute)
		if set != nil {
			set(f)
		}
		if s := f.take(now); (s.Silent > 0) != (set == nil) || s.SilentKnown != (set == nil) || (s.Service != nil) != (name == "out of service") {
			t.Errorf("%s: silent for %v, known %t, service %v", name, s.Silent, s.SilentKnown, s.Service)
		}
	}
	f := newFake(now)
	f.node.Written, f.said.Answers = true, now
	if s := f.take(now); s.Silent > 0 || s.SilentKnown {
		t.Errorf("before it asked: silent for %v, known %t", s.Silent, s.SilentKnown)
	}
}

// TestHostAndAccount: the plan has the node's name, and root's agent serves all accounts.
func TestHostAndAccount(t *testing.T) {
	f := newFake(time.Now())
	f.node.Plan.Host.Name = "gpu1.example"
	s := f.take(time.Now())
	if s.Host != "gpu1.example" || s.NotRoot {
		t.Errorf("%q, %t", s.Host, s.NotRoot)
	}
	r := f.reader()
	r.Own = 1000
	if !r.Take(time.Now()).NotRoot {
		t.Error("uid 1000 is root")
	}
}

// TestFullGPU: HTCondor wanted more than the plan has, and the device is to go.
func TestFullGPU(t *testing.T) {
	f := newFake(time.Now())
	f.table.Look(func(v *jobs.View) { v.NoteFull(one) })
	if got := f.take(time.Now()).GPUs[0].Reason; !strings.Contains(got, "wanted more of it") {
		t.Errorf("%q", got)
	}
	f.table.Leave(map[gpu.UUID]string{one: jobs.IsLeaving})
	if got := f.take(time.Now()).GPUs[0].Reason; got != jobs.IsLeaving {
		t.Errorf("%q", got)
	}
}

// TestAloneOrWhole: a device that one job has alone is closed by its own health, and has its jobs.
func TestAloneOrWhole(t *testing.T) {
	for _, parent := range []gpu.UUID{"", "GPU-00000000-0000-4000-8000-00000000000a"} {
		f := newFake(time.Now())
		f.whole, f.health.Closed = "it is gone", "of a daemon"
		f.node.Plan.GPUs[0].Mode, f.node.Plan.GPUs[0].Parent = config.ModeMIG, parent
		f.table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{jobIn("slot1_1")} })
		g := f.take(time.Now()).GPUs[0]
		if g.Reason != "it is gone" || len(g.Jobs) != 1 || g.Budgeted != 4096 || len(g.Closures) != 1 {
			t.Errorf("parent %q: %+v", parent, g)
		}
	}
}

// TestTenantInStatus: a GPU of one tenant at a time names whose jobs it takes; another one names no tenant.
func TestTenantInStatus(t *testing.T) {
	for policy, want := range map[config.TenancyPolicy]string{config.TenancyOneAtATime: "alice", config.TenancyMultiUser: ""} {
		f := newFake(time.Now())
		f.node.Plan.GPUs[0].Tenancy.Policy = policy
		j := jobIn("slot1_1")
		j.Owner = "alice"
		f.table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{j} })
		if g := f.take(time.Now()).GPUs[0]; g.Tenant != want {
			t.Errorf("%s: %q, %s", policy, g.Tenant, g.Reason)
		}
	}
}

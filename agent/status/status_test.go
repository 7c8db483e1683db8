package status

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

const one = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")

// fake is a node of one shared GPU and everything that a Reader asks. Its zero value has
// nothing that closes the GPU.
type fake struct {
	health    admission.Health
	whole     string
	closed    closures.List
	phase     closures.Node
	fault     faults.Verdict
	side      string
	none      bool // no static SM partition is free
	verifying bool
	verified  *api.Verification
	stranger  string
	said      startd.Said
	node      Node
	quiet     bool
	idle      string // why jobs start nowhere
	enforced  string
	unlisted  sampling.Unlisted
	table     *jobs.Table
}

func (f *fake) Shared(*plan.GPU, time.Time) admission.Health    { return f.health }
func (f *fake) Alone(*plan.GPU, time.Time) string               { return f.whole }
func (f *fake) Whole(*plan.GPU, time.Time) string               { return f.whole }
func (f *fake) On(...gpu.UUID) closures.List                    { return f.closed }
func (f *fake) Node() closures.Node                             { return f.phase }
func (f *fake) Verdict(gpu.UUID, time.Time) faults.Verdict      { return f.fault }
func (f *fake) Counts() []faults.Counted                        { return nil }
func (f *fake) Side(gpu.UUID) string                            { return f.side }
func (f *fake) HasFree(gpu.UUID, process.ID) bool               { return !f.none }
func (f *fake) SMs(starter.Starter, gpu.UUID) *int              { return nil }
func (f *fake) Runs(gpu.UUID) bool                              { return f.verifying }
func (f *fake) LeftBehind(gpu.UUID, uint32, mps.Checked) string { return f.stranger }
func (f *fake) EnforcedBy(_ jobs.Job, otherwise string, _ time.Time) string {
	return max(f.enforced, otherwise)
}
func (f *fake) Uses(u gpu.UUID) sampling.Uses              { return sampling.New(sampling.Options{}).Uses(u) }
func (f *fake) Said() *startd.Said                         { return &f.said }
func (f *fake) Worst() (ok bool, at time.Time, asked bool) { return }

func (f *fake) TookAt(api.Op) time.Time { return time.Time{} }
func (f *fake) Entered()                {}

// verifier and samples are types of their own because of their methods' names.
type verifier struct{ *fake }

func (v verifier) Last(gpu.UUID) *api.Verification { return v.verified }

type samples struct{ *fake }

func (samples) Last() *usage.Snapshot { return &usage.Snapshot{} }

type quiescer struct{}

func (quiescer) Status() api.NodeStatus { return api.NodeStatus{} }

func newFake(now time.Time) *fake {
	f := &fake{health: admission.Health{Checked: mps.Checked{PID: 7, At: now}}}
	f.node = Node{
		Config: config.Default(), Planned: true, Present: map[gpu.UUID]bool{one: true},
		Plan: plan.Plan{GPUs: []plan.GPU{{
			UUID: one, Mode: config.ModeMPS, Shares: 4, Pool: 32000, LargestRequest: 16000, DefaultRequest: 8000,
			Tenancy: plan.Tenancy{Policy: config.TenancyOneAtATime},
		}}},
	}
	f.table = jobs.New(nil)
	return f
}

func (f *fake) take(now time.Time) *Snapshot { return f.reader().Take(now) }

func (f *fake) reader() *Reader {
	f.node.Health = f
	return New(Options{
		Version: "test", Node: func() Node { return f.node }, Closed: func(time.Time) string { return f.idle },
		Seen:     func(*Node, *plan.GPU, time.Time) gpu.Measured[bool] { return gpu.Measured[bool]{} },
		Unlisted: func(*Node, *plan.GPU, time.Time) sampling.Unlisted { return f.unlisted },
		Warnings: func() []string { return nil }, Quiet: func() bool { return f.quiet },
		Jobs: f.table, Callers: f.table, Closures: f, Quiescer: quiescer{}, Faults: f, Elastic: f, Partitions: f,
		Verifier: verifier{f}, Access: f, Limits: f, Samples: samples{f}, Startds: f, Feedback: f,
	})
}

// TestEveryReaderSeesTheSameReason: each way to be closed reaches the status, the monitor and,
// in general, those who may not see accounts.
func TestEveryReaderSeesTheSameReason(t *testing.T) {
	now := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		set     func(f *fake)
		want    string
		general string
	}{
		"open":      {func(*fake) {}, "", ""},
		"unproven":  {func(f *fake) { f.health.Checked = mps.Checked{} }, "has not proven its health", "for now"},
		"draining":  {func(f *fake) { f.said.Draining = map[gpu.UUID]bool{one: true} }, startd.Restarts, "for now"},
		"verifying": {func(f *fake) { f.verifying = true }, admission.BeingVerified, "A CUDA client tries it now."},
		"stranger":  {func(f *fake) { f.stranger = "process 7 of mallory" }, "process 7 of mallory", "for now"},
		"no partition": {func(f *fake) {
			f.node.Plan.GPUs[0].Threads.Policy, f.none = config.ThreadsPartitioned, true
		}, admission.NoPartition, "for now"},
		"no such account": {func(f *fake) {
			f.node.Plan.GPUs[0].Tenancy = plan.Tenancy{Policy: config.TenancyCommon, User: "nobody7"}
		}, "common:nobody7", "for now"},
		"elastic": {func(f *fake) { f.side = "it serves whole jobs now" }, "it serves whole jobs now", "for now"},
		"an owner": {func(f *fake) {
			f.closed = closures.List{{GPU: one, Owner: "operator", Reason: "mallory's job", Since: now}}
		}, "mallory's job", "Closed by operator."},
		"the node": {func(f *fake) {
			f.phase, f.idle = closures.Node{Phase: closures.Quiesced}, "the node is out of service"
		}, "the node is out of service", "The node is quiesced."},
		"no hook": {func(f *fake) { f.idle = "the hook does not run" }, "the hook does not run", "for now"},
		"a fault": {func(f *fake) {
			f.health.Closed = "Xid 79"
			f.fault = faults.Verdict{Class: faults.ClosedForReset, Reason: "Xid 79", Since: now}
		}, "Xid 79", "Its hardware reported an error that only a reset repairs."},
		"gone": {func(f *fake) { f.health.Closed, f.node.Present = "it is gone", nil }, "it is gone", "does not have it"},
	} {
		f := newFake(now)
		c.set(f)
		s := f.take(now)
		g, said, general := s.Status().GPUs[0], s.Acceptances()[0], s.GeneralReason(&s.GPUs[0])
		if open := c.want == ""; g.Accept != open || said.Accept != open || s.Accepts(&s.GPUs[0]) != open {
			t.Errorf("%s: status %v, monitor %v, metrics %v", name, g.Accept, said.Accept, s.Accepts(&s.GPUs[0]))
		}
		if !strings.Contains(g.Reason, c.want) || said.Reason != g.Reason || !strings.Contains(general, c.general) {
			t.Errorf("%s: status %q, monitor %q, in general %q", name, g.Reason, said.Reason, general)
		}
		if strings.Contains(general, "mallory") || strings.Contains(general, "nobody7") {
			t.Errorf("%s: in general %q names an account", name, general)
		}
	}
}

// TestQuietSeesNothing: an agent that touches no GPU closes none for what it does not see.
func TestQuietSeesNothing(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	f.quiet, f.health.Checked = true, mps.Checked{}
	if s := f.take(now); s.GPUs[0].Reason != "" {
		t.Errorf("closed: %s", s.GPUs[0].Reason)
	}
}

// TestSilentStartd: without a startd that asks no GPU takes jobs, whatever the agent says; the
// startd's own next question hears the truth.
func TestSilentStartd(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	f.node.Written, f.said.Answers = true, now.Add(-2*time.Minute)
	s := f.take(now)
	st := s.Status()
	if st.GPUs[0].Accept || !strings.Contains(st.GPUs[0].Reason, "has not asked for 2m0s") || len(st.Errors) != 1 {
		t.Errorf("status %+v, errors %q", st.GPUs[0], st.Errors)
	}
	if s.Accepts(&s.GPUs[0]) || !s.Acceptances()[0].Accept {
		t.Error("the metrics say that it takes jobs, or the monitor that it does not")
	}
}

// TestUnlisted: VRAM that NVML lists with no process is in the status and in the slot's ad.
func TestUnlisted(t *testing.T) {
	f := newFake(time.Now())
	f.unlisted = sampling.Unlisted{VRAM: 900, Taken: 800}
	s := f.take(time.Now())
	g, said := s.Status().GPUs[0], s.Acceptances()[0]
	if g.UnlistedMiB != 900 || !strings.Contains(g.Unlisted, "900 MiB") || said.UnlistedMiB != 900 || said.TakenMiB != 800 {
		t.Errorf("status %+v, monitor %+v", g, said)
	}
}

// TestWeakestEnforcement: the GPU shows what enforces the weakest of its jobs' budgets.
func TestWeakestEnforcement(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	f.health.PrivilegeChecks = true
	if got := f.take(now).Status().GPUs[0].EnforcedBy; got != jobs.EnforcedByNone {
		t.Errorf("a default request below the daemon's limit is enforced by %s", got)
	}
	g := GPU{GPU: &f.node.Plan.GPUs[0], Jobs: []Job{{Enforced: jobs.EnforcedByCgroup}, {Enforced: jobs.EnforcedByWatch}}}
	if got := g.enforced(); got != jobs.EnforcedByWatch {
		t.Errorf("the weakest is %s", got)
	}
}

// TestElasticWhole: an elastic GPU on the side of whole jobs takes those, unless somebody
// closed it.
func TestElasticWhole(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	f.node.Plan.GPUs[0].Mode, f.node.Plan.GPUs[0].Elastic, f.side = config.ModeWhole, true, "it serves whole jobs now"
	if g := f.take(now).Status().GPUs[0]; !g.Accept {
		t.Errorf("%+v", g)
	}
	f.closed = closures.List{{GPU: one, Owner: "operator", Reason: "too hot", Since: now}}
	g := f.take(now).Status().GPUs[0]
	if g.Accept || !strings.Contains(g.Reason, "too hot") || strings.Contains(g.Reason, "whole jobs now") {
		t.Errorf("%+v", g)
	}
}

// TestWithoutAPlan: GPUs of the plan before stay closed, with the reason.
func TestWithoutAPlan(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	f.node = Node{NoPlan: "no plan yet", Before: f.node.Plan}
	s := f.take(now)
	all := s.Acceptances()
	if len(all) != 1 || all[0].Accept || all[0].Reason != "no plan yet" || all[0].UUID != string(one) {
		t.Errorf("%+v", all)
	}
	if len(s.Status().GPUs) > 0 {
		t.Errorf("%+v", s.Status().GPUs)
	}
}

// TestWarnings: the gravest come first, and a fault of an observed GPU is told once.
func TestWarnings(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	f.node.Closed, f.node.Problems = "the driver is not loaded", []string{"A problem."}
	f.node.Plan.Warnings = []string{"A warning of the plan."}
	got := f.take(now).Status().Warnings
	if len(got) != 3 && len(got) != 4 || !strings.HasPrefix(got[0], "No GPU takes jobs: the driver") ||
		!slices.Equal(got[len(got)-2:], []string{"A problem.", "A warning of the plan."}) {
		t.Errorf("%q", got)
	}
	f = newFake(now)
	g := f.node.Plan.GPUs[0]
	g.Mode = config.ModeObserve
	f.node.Plan.GPUs, f.node.Plan.Observe = []plan.GPU{g, g}, true
	f.fault = faults.Verdict{Class: faults.ClosedBroken, Reason: "Xid 79"}
	told := 0
	for _, w := range f.take(now).Status().Warnings {
		if strings.Contains(w, "Xid 79. It is observed") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("a fault is told %d times", told)
	}
}

// TestPublicStatusIsKept: however often accounts ask, one snapshot is taken in publicAge.
func TestPublicStatusIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, looks := newFake(time.Now()), 0
		p := Public{Look: func(now time.Time) *Snapshot {
			looks++
			return f.take(now)
		}}
		p.Status(1000)
		if p.Status(1001); looks != 1 {
			t.Errorf("%d snapshots were taken at once", looks)
		}
		time.Sleep(publicAge)
		if p.Status(1001); looks != 2 {
			t.Error("the answer has grown old")
		}
	})
}

package admission

import (
	"context"
	"errors"
	"log/slog"
	"os/user"
	"strings"
	"sync"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// oneSide is an elastic group that refuses all jobs.
type oneSide struct{}

func (oneSide) Refuse(*jobs.View, starter.Starter, *plan.Plan, []gpu.UUID, bool) *api.Refusal {
	return api.Refuse(api.CodeClosed, "it serves others now")
}

// guarded is access to GPUs on which a stranger computes.
type guarded struct {
	*fakeAccess
	asked int
}

func (g *guarded) Stranger(context.Context, gpu.UUID, uint32, mps.Checked, func()) string {
	g.asked++
	return "process 7 of mallory"
}

// TestWhyNoJobEnters: each cause refuses with its words, and no job is in the table. What START has to see wakes it.
func TestWhyNoJobEnters(t *testing.T) {
	for name, c := range map[string]struct {
		gpu   int
		set   func(n *node, s starter.Starter)
		code  int
		want  string
		wakes bool
	}{
		"observed":  {0, func(n *node, _ starter.Starter) { n.state.Plan.Observe = true }, api.CodeClosed, "only observes", false},
		"elsewhere": {0, func(n *node, s starter.Starter) { n.Jobs.PutElsewhere(s) }, api.CodeNotPlanned, "has no such GPU", false},
		"unknown": {0, func(n *node, _ starter.Starter) {
			n.Jobs.Await([]starter.Starter{n.starter(200, "slot1_9")})
		}, api.CodeClosed, "runs since before gpuslotd started", true},
		"closed before it is unknown": {0, func(n *node, _ starter.Starter) {
			n.Jobs.Await([]starter.Starter{n.starter(200, "slot1_9")})
			n.closed[uuid(0)] = "too hot"
		}, api.CodeClosed, "too hot", true},
		"a verification": {0, func(n *node, _ starter.Starter) {
			s := n.starter(200, "slot1_9")
			s.Slot = VerifySlot
			n.Jobs.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{{Starter: s, GPU: uuid(0)}} })
		}, api.CodeClosed, BeingVerified, true},
		"closed":         {0, func(n *node, _ starter.Starter) { n.closed[uuid(0)] = "too hot" }, api.CodeClosed, "too hot", true},
		"the other side": {0, func(n *node, _ starter.Starter) { n.Elastic = oneSide{} }, api.CodeClosed, "serves others", false},
		"closed whole":   {1, func(n *node, _ starter.Starter) { n.closed[uuid(1)] = "too hot" }, api.CodeClosed, "too hot", true},
		"taken whole":    {1, func(n *node, _ starter.Starter) { n.taken[uuid(1)] = "process 7" }, api.CodeClosed, "process 7", true},
		"leaving": {1, func(n *node, _ starter.Starter) {
			n.Jobs.Leave(map[gpu.UUID]string{uuid(1): jobs.IsLeaving})
		}, api.CodeClosed, jobs.IsLeaving, true},
		"a stranger": {0, func(n *node, _ starter.Starter) { n.Access = &guarded{fakeAccess: n.access} }, api.CodeOtherTenant, "mallory", false},
		"no partition": {0, func(n *node, _ starter.Starter) {
			n.state.Plan.GPUs[0].Threads.Policy = config.ThreadsPartitioned
		}, api.CodeClosed, NoPartition, true},
		"another's whole GPU": {1, func(n *node, _ starter.Starter) {
			n.Jobs.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{{Starter: n.starter(200, "slot1_9"), GPU: uuid(1)}} })
		}, api.CodeClosed, "is still held by", false},
	} {
		n := newNode(t)
		s := n.starter(100, "slot1_1")
		c.set(n, s)
		before := len(n.Jobs.Running())
		r := n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(c.gpu), 4096)).Refusal
		if r == nil || r.Code != c.code || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s: %+v", name, r)
		}
		if (n.changed > 0) != c.wakes || len(n.Jobs.Running()) != before || n.access.changes > 0 {
			t.Errorf("%s: woken %d times, %d jobs, access changed %d times", name, n.changed, len(n.Jobs.Running()), n.access.changes)
		}
	}
}

// TestWhoAsksForStrangers: only where one account at a time has a GPU of a control daemon that is not closed.
func TestWhoAsksForStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(n *node)
		want int
	}{
		"one at a time": {func(*node) {}, 1},
		"many users":    {func(n *node) { n.state.Plan.GPUs[0].Tenancy.Policy = config.TenancyMultiUser }, 0},
		"closed":        {func(n *node) { n.closed[uuid(0)] = "too hot" }, 0},
		"without MPS":   {func(n *node) { n.state.Plan.GPUs[0].Mode = config.ModeTimeSlice }, 0},
	} {
		n := newNode(t)
		g := &guarded{fakeAccess: n.access}
		n.Access = g
		c.set(n)
		s := n.starter(100, "slot1_1")
		if n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 4096)); g.asked != c.want {
			t.Errorf("%s: asked %d times", name, g.asked)
		}
	}
}

// TestEndedJobsMakeRoom: jobs that have ended and stand in the way go, and their access with them. A job that has
// its GPU already does not wait for others.
func TestEndedJobsMakeRoom(t *testing.T) {
	n := newNode(t)
	var ended []string
	n.Ended = func(all []jobs.Job) {
		for _, j := range all {
			ended = append(ended, j.Starter.Slot)
		}
	}
	alice, bob := n.starter(100, "slot1_1"), n.starter(101, "slot1_2")
	n.grant(alice, 1000, "alice", uuid(0), 4096)
	if r := n.prepare(hookOf(bob, 1001), jobOn(bob, "bob", uuid(0), 4096)).Refusal; r == nil || len(ended) > 0 {
		t.Errorf("while it runs: %+v, ended %q", r, ended)
	}
	n.Forget(bob) // its hook asks again
	n.proc.End(alice.PID)
	n.grant(bob, 1001, "bob", uuid(0), 4096)
	if len(ended) != 1 || ended[0] != "slot1_1" {
		t.Errorf("ended %q", ended)
	}
	carol := n.starter(102, "slot1_3")
	n.grant(carol, 1001, "bob", uuid(0), 4096)
	n.proc.End(bob.PID)
	n.Forget(carol)
	if n.prepare(hookOf(carol, 1001), jobOn(carol, "bob", uuid(0), 2048)); len(ended) != 1 {
		t.Errorf("another job's end changes nothing of its own claim: ended %q", ended)
	}
}

// TestAJobKeepsItsGPU: a question of a job that is in the table already takes nothing from it when it fails.
func TestAJobKeepsItsGPU(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.grant(s, 1000, "alice", uuid(0), 4096)
	n.Forget(s)
	n.access.err = errors.New("no ACLs")
	if r := n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 4096)).Refusal; r == nil || len(n.Jobs.Running()) != 1 {
		t.Errorf("%+v, %d jobs", r, len(n.Jobs.Running()))
	}
	whole := n.starter(101, "slot1_2")
	n.grant(whole, 1000, "alice", uuid(1), 32768)
	n.Forget(whole)
	n.taken[uuid(1)] = "process 7" // of the job
	n.grant(whole, 1000, "alice", uuid(1), 32768)
}

// TestOutcome: the metric tells jobs that are sent back from those that are held.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		refusal        *api.Refusal
		err            error
		result, reason string
	}{
		{nil, nil, granted, "none"}, {nil, errors.New("no"), denied, "caller"},
		{&api.Refusal{Code: api.CodeClosed, Requeue: true}, nil, requeued, "closed"},
		{&api.Refusal{Code: api.CodeTooLarge}, nil, held, "too-large"}, {&api.Refusal{Code: -1}, nil, held, "other"},
	} {
		if result, reason := outcome(c.refusal, c.err); result != c.result || reason != c.reason {
			t.Errorf("%+v: %s, %s", c, result, reason)
		}
	}
}

// TestDenied: only a hook below a starter without a slot is HTCondor's own fault, which START has to see.
func TestDenied(t *testing.T) {
	for _, c := range []struct {
		hook   bool
		err    error
		reason string
	}{{true, starter.ErrSlotless, "no-slot"}, {false, starter.ErrSlotless, "caller"}, {true, errors.New("no"), "caller"}} {
		n := newNode(t)
		for range 2 {
			n.Denied(starter.Caller{Hook: c.hook, Starter: starter.Starter{ID: process.ID{PID: 100}}}, c.err)
		}
		own := c.reason == "no-slot"
		if n.counts.admissions[[2]string{denied, c.reason}] != 2 || own != (n.changed == 1) || !own && n.changed > 0 {
			t.Errorf("%+v: counted %v, woken %d times", c, n.counts.admissions, n.changed)
		}
	}
}

// TestLinesOfACaller: a job fills the log with one warning, however often it is refused; each hook has its line.
func TestLinesOfACaller(t *testing.T) {
	n, log := newNode(t), strings.Builder{}
	n.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := n.starter(100, "slot1_1")
	count := func(level string) int { return strings.Count(log.String(), "level="+level) }
	for range 3 {
		n.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 4096))
	}
	if count("WARN") != 1 || count("DEBUG") != 2 || count("INFO") > 0 {
		t.Errorf("refused: %s", &log)
	}
	log.Reset()
	n.startds.slots = []condor.Slot{slotAd("slot1_1", "9.0", "alice", 4096, uuid(0))}
	for range 2 { // the second time it hears what it has
		n.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 4096))
	}
	if count("INFO") != 1 || count("DEBUG") != 1 || count("WARN") > 0 {
		t.Errorf("confirmed: %s", &log)
	}
	log.Reset()
	other := n.starter(101, "slot1_2")
	n.prepare(hookOf(other, 1000), jobOn(other, "alice", uuid(0), 99999))
	if count("INFO") != 1 || count("WARN")+count("DEBUG") > 0 {
		t.Errorf("a hook: %s", &log)
	}
}

// TestQuestionsTogether: the race detector looks at each method beside all others. Starters that have ended go when
// there are many.
func TestQuestionsTogether(t *testing.T) {
	n := newNode(t)
	q := newQuestions(func(p process.ID) bool { return p.PID == 7 })
	var all sync.WaitGroup
	for i := range 4 {
		s := starter.Starter{ID: process.ID{PID: i}}
		all.Go(func() { q.firstRefusal(s) })
		all.Go(func() {
			_, _, _ = q.next(n.Jobs, &starter.Caller{Hook: true, Starter: starter.Starter{ID: process.ID{PID: 1}}}, true)
		})
		all.Go(func() { q.forget(s) })
	}
	all.Wait()
	clear(q.by)
	for i := range startersKept - 1 {
		q.by[process.ID{PID: i}] = asked{}
	}
	if q.firstRefusal(starter.Starter{ID: process.ID{PID: -1}}); len(q.by) != startersKept {
		t.Errorf("%d are kept", len(q.by))
	}
	if !q.firstRefusal(starter.Starter{ID: process.ID{PID: 7}}) || q.firstRefusal(starter.Starter{ID: process.ID{PID: 7}}) || len(q.by) != 1 {
		t.Errorf("%d are kept of one that runs", len(q.by))
	}
}

// TestConfirmationThatFails: a slot whose ad cannot be read is not confirmed, and who waits for the questions of
// others does not wait without end. A job without GPUs asks no startd.
func TestConfirmationThatFails(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	c := starter.Caller{UID: 1000, PID: 4000, Starter: s}
	ad := slotAd("slot1_1", "9.0", "alice", 4096, uuid(0))
	ad.Unreadable = "its VRAM"
	n.startds.slots = []condor.Slot{ad}
	if r := n.prepare(c, jobOn(s, "alice", uuid(0), 4096)).Refusal; r == nil || !strings.Contains(r.Reason, "its VRAM") {
		t.Errorf("unreadable: %+v", r)
	}
	n.confirming <- struct{}{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if r := n.Prepare(gone, c, jobOn(s, "alice", uuid(0), 4096)).Refusal; r == nil || !strings.Contains(r.Reason, "too many jobs wait") {
		t.Errorf("while others ask: %+v", r)
	}
	<-n.confirming
	asked := n.startds.asked
	if reply := n.prepare(c, &api.Job{ID: "9.0"}); reply.Grant == nil || n.startds.asked != asked {
		t.Errorf("without a GPU: %+v, asked %d times", reply, n.startds.asked-asked)
	}
	n.startds.slots[0].Unreadable = ""
	for range 2 { // the turn is given back
		if reply := n.prepare(c, jobOn(s, "alice", uuid(0), 4096)); reply.Grant == nil {
			t.Errorf("%+v", reply)
		}
	}
}

// TestAccountsOfAPlan: each is looked up once, and again when the configuration is read again.
func TestAccountsOfAPlan(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) plan.GPU { return plan.GPU{Tenancy: plan.Tenancy{User: name}} }
	p := &plan.Plan{GPUs: []plan.GPU{of(""), of(me.Username), of("no-such-account-7"), of(me.Username)}}
	now := Accounts(t.Context(), p, nil, false)
	if len(now) != 2 || !now[me.Username].Known || now["no-such-account-7"].Known {
		t.Errorf("%+v", now)
	}
	old := map[string]starter.Account{me.Username: {UID: 4711, Known: true}, "another": {Known: true}}
	if got := Accounts(t.Context(), p, old, false); len(got) != 2 || got[me.Username].UID != 4711 {
		t.Errorf("what was found before: %+v", got)
	}
	if got := Accounts(t.Context(), p, old, true); got[me.Username] != now[me.Username] {
		t.Errorf("read again: %+v", got)
	}
}

// TestStartOfSeveral: a job with a whole and two shared GPUs is supervised, and its limits are set on each shared
// one; in a login's cgroup none is. Who was moved out of its cgroup does not start.
func TestStartOfSeveral(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.Jobs.Admit(starter.Caller{Hook: true}, func(*jobs.View) []jobs.Job {
		return []jobs.Job{{Starter: s, GPU: uuid(7)}, {Starter: s, GPU: uuid(1)}, {Starter: s, GPU: uuid(0)}, {Starter: s, GPU: uuid(2)}}
	})
	c := starter.Caller{UID: 1000, PID: 200, Starter: s, Leaf: starter.Leaf{Path: "/leaf"}}
	if r := n.Start(t.Context(), c).Started; r == nil || !r.Supervise || !r.Reserved || len(n.limited) != 2 {
		t.Errorf("%+v, limited %v", r, n.limited)
	}
	n.limited, c.Leaf.Login = nil, true
	if r := n.Start(t.Context(), c).Started; r == nil || !r.Supervise || r.Reserved || len(n.limited) > 0 {
		t.Errorf("a login: %+v, limited %v", r, n.limited)
	}
	c.Leaf.Left = true
	if r := n.Start(t.Context(), c).Refusal; r == nil || !strings.Contains(r.Reason, "moved out of its own cgroup") {
		t.Errorf("%+v", r)
	}
}

// TestTargetOfElasticGPUs: the request decides whether a job has its share of one, or all of it. One MIG device is
// no other GPU beside itself.
func TestTargetOfElasticGPUs(t *testing.T) {
	p := admitState().Plan
	p.GPUs[0].Elastic = true
	p.GPUs[1].Mode, p.GPUs[1].Parent = config.ModeMIG, uuid(9)
	p.GPUs[2].Mode, p.GPUs[2].Elastic = config.ModeWhole, true
	for name, c := range map[string]struct {
		gpus   []int
		vram   int64
		shared int // -1 for none
		whole  int
		code   int
	}{
		"a share": {[]int{0}, 4096, 0, 0, 0}, "all of it": {[]int{0}, 20000, -1, 1, 0}, "a share on the other side": {[]int{2}, 4096, 2, 0, 0},
		"two": {[]int{0, 2}, 4096, -1, 2, 0}, "a MIG device": {[]int{1}, 4096, -1, 1, 0},
		"a MIG device and another": {[]int{0, 1}, 4096, -1, 0, api.CodeSeveralGPUs}, "one twice": {[]int{1, 1}, 4096, -1, 0, api.CodeBadGPUs},
	} {
		job := &api.Job{ProvisionedVRAM: vram(c.vram)}
		for _, n := range c.gpus {
			job.AssignedGPUs = append(job.AssignedGPUs, string(uuid(n)))
		}
		g, whole, r := target(p, job)
		if (g != nil) != (c.shared >= 0) || g != nil && g.UUID != uuid(c.shared) || len(whole) != c.whole ||
			(r != nil) != (c.code != 0) || r != nil && r.Code != c.code {
			t.Errorf("%s: %+v, %v, %+v", name, g, whole, r)
		}
	}
}

// TestAdmittedText: the history has what is known of the job.
func TestAdmittedText(t *testing.T) {
	g := &api.Grant{Environment: map[string]string{"GPUSLOT_VRAM_MIB": "4096"}, EnforcedBy: "daemon"}
	if got := admittedText(&api.Job{Owner: "alice"}, g); got != "The job of alice was admitted with 4096 MiB, enforced by daemon." {
		t.Errorf("%q", got)
	}
	if got := admittedText(&api.Job{}, &api.Grant{}); got != "The job was admitted." {
		t.Errorf("%q", got)
	}
}

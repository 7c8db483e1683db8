package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

func vram(n int64) *int64 { return &n }

// account is one account's access to a GPU.
type account struct {
	gpu gpu.UUID
	uid uint32
}

// fakeAccess are pipe directories that remember who is in.
type fakeAccess struct {
	in  map[account]bool
	err error
	// changes counts those of access.
	changes int
}

func (a *fakeAccess) Stranger(context.Context, gpu.UUID, uint32, mps.Checked, func()) string {
	return ""
}

func (a *fakeAccess) Give(u gpu.UUID, uid uint32) error {
	a.changes++
	if a.err == nil {
		a.in[account{u, uid}] = true
	}
	return a.err
}

func (a *fakeAccess) sweep(needs func(gpu.UUID, uint32) bool) {
	for who := range a.in {
		if !needs(who.gpu, who.uid) {
			a.changes++
			delete(a.in, who)
		}
	}
}

// fakeStartds are startds whose slots the test writes.
type fakeStartds struct {
	slots []condor.Slot
	err   error
	asked int
}

func (s *fakeStartds) Slots(context.Context) ([]condor.Slot, error) {
	s.asked++
	return s.slots, s.err
}

// slotAd is a dynamic slot that runs a job.
func slotAd(name, job, owner string, mib int64, u gpu.UUID) condor.Slot {
	return condor.Slot{
		Name: name + "@wn1.example.org", Type: "Dynamic", State: "Claimed", JobID: job,
		RemoteOwner: owner + "@example.org", AssignedGPUs: []string{string(u)}, VRAM: &mib, GPUs: 1, Cpus: 1,
	}
}

// fakePartitions are static SM partitions, of which the first is free.
type fakePartitions struct {
	free  []string
	taken map[starter.Starter]string
	err   error
}

func (p *fakePartitions) Offer(_ *jobs.View, s starter.Starter, _ gpu.UUID, _ process.ID) string {
	switch {
	case p.taken[s] != "":
		return p.taken[s]
	case len(p.free) > 0:
		return p.free[0]
	}
	return ""
}

func (p *fakePartitions) Take(s starter.Starter, _ gpu.UUID, id string) (undo func()) {
	if p.taken[s] == id {
		return nil
	}
	p.free, p.taken[s] = p.free[1:], id
	return func() {
		p.free = append(p.free, id)
		delete(p.taken, s)
	}
}

func (p *fakePartitions) Write() error { return p.err }

// counts are the metrics.
type counts struct {
	admissions map[[2]string]int
	mismatches int
}

func (c *counts) Admission(result, reason string, _ time.Duration) {
	c.admissions[[2]string{result, reason}]++
}

func (c *counts) Mismatch() { c.mismatches++ }

// noElastic is a node without elastic GPUs.
type noElastic struct{}

func (noElastic) Refuse(*jobs.View, starter.Starter, *plan.Plan, []gpu.UUID, bool) *api.Refusal {
	return nil
}

// node is one with the GPUs of admitState: the first and the third are shared, the second
// is not. It is what its Preparer works with, too.
type node struct {
	*Preparer
	t          testing.TB
	proc       proctree.Tree
	view       starter.Node
	state      State
	access     *fakeAccess
	startds    *fakeStartds
	partitions *fakePartitions
	counts     *counts
	// closed are GPUs that are closed, and why.
	closed map[gpu.UUID]string
	// taken are GPUs on which a process computes without a job.
	taken map[gpu.UUID]string
	// cgroupRefuses is why no job may start, closeFails why device nodes cannot be closed,
	// limitFails why the driver limits no job; limited are the cgroups that got limits, nodesOf
	// those that got their device nodes.
	cgroupRefuses, closeFails, limitFails error
	limited, nodesOf                      []string

	mu      sync.Mutex
	events  []history.Event
	changed int
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{
		t: t, proc: proctree.New(t), state: admitState(), access: &fakeAccess{in: map[account]bool{}},
		startds: &fakeStartds{}, partitions: &fakePartitions{taken: map[starter.Starter]string{}},
		counts: &counts{admissions: map[[2]string]int{}}, closed: map[gpu.UUID]string{},
		taken: map[gpu.UUID]string{},
	}
	n.view = starter.Node{FS: process.FS{Root: n.proc.Root}, Own: uint32(os.Getuid())}
	table := jobs.New(n.view)
	n.Preparer = New(Options{
		Node: n.now, Jobs: table, Access: n.access, Partitions: n.partitions, Elastic: noElastic{}, Startds: n.startds,
		Processes: n.view, Events: n, Metrics: n.counts, Log: slog.New(slog.DiscardHandler),
		Sweep:   n.sweep,
		Ended:   func([]jobs.Job) { n.access.sweep(table.Needs) },
		Changed: func() { n.changed++ },
		Entered: func() {},
	})
	return n
}

func (n *node) now() Node {
	return Node{
		Plan: n.state.Plan, Pipes: n.state.Pipes, MaxAge: n.state.MaxAge,
		Accounts: map[string]starter.Account{}, GPUs: n, Cgroups: n,
	}
}

func (n *node) sweep() {
	n.Jobs.DropEnded()
	n.access.sweep(n.Jobs.Needs)
}

func (n *node) Health(g *plan.GPU, _ uint64, now time.Time) Health {
	h := n.state.Health
	h.Closed, h.Checked.At = n.closed[g.UUID], now
	return h
}

func (n *node) Taken(g *plan.GPU) string { return n.taken[g.UUID] }

func (n *node) Closed(g *plan.GPU, taken string, _ uint64, _ time.Time) string {
	return cmp.Or(n.closed[g.UUID], taken)
}

func (n *node) Starts(starter.Caller) error { return n.cgroupRefuses }

func (n *node) CloseNodes(_ starter.Starter, _ []jobs.Job, leaf string) error {
	n.nodesOf = append(n.nodesOf, leaf)
	return n.closeFails
}

func (n *node) Limit(_ context.Context, _ jobs.Job, leaf string) (reserved bool, err error) {
	n.limited = append(n.limited, leaf)
	return n.limitFails == nil, n.limitFails
}

func (n *node) Event(e history.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

// starter adds the condor_starter of a slot.
func (n *node) starter(pid int, slot string) starter.Starter {
	return starter.Starter{ID: n.proc.Starter(pid, slot), Slot: slot}
}

// prepare asks with no end but the test's.
func (n *node) prepare(c starter.Caller, job *api.Job) api.Reply {
	n.t.Helper()
	return n.Prepare(n.t.Context(), c, job)
}

// grant has a job admitted by its starter's first hook, or fails the test.
func (n *node) grant(s starter.Starter, uid uint32, owner string, u gpu.UUID, mib int64) *api.Grant {
	n.t.Helper()
	reply := n.prepare(hookOf(s, uid), jobOn(s, owner, u, mib))
	if reply.Grant == nil {
		n.t.Fatalf("%s was not admitted: %+v %s", s.Slot, reply.Refusal, reply.Error)
	}
	return reply.Grant
}

// entry is a slot's in the job table.
func (n *node) entry(slot string) jobs.Job {
	n.t.Helper()
	all := n.Jobs.Running()
	i := slices.IndexFunc(all, func(j jobs.Job) bool { return j.Starter.Slot == slot })
	if i < 0 {
		n.t.Fatalf("%s is not in the job table", slot)
	}
	return all[i]
}

// settle compares the job table with the startds' ads.
func (n *node) settle() {
	ads := jobs.Ads{Slots: map[string]condor.Slot{}, EnforcedBy: func(gpu.UUID, gpu.MiB) string { return jobs.EnforcedByNone }}
	for _, s := range n.startds.slots {
		ads.Slots[condor.SlotName(s.Name)] = s
	}
	n.Jobs.Settle(ads)
}

func hookOf(s starter.Starter, uid uint32) starter.Caller {
	return starter.Caller{UID: uid, PID: 4000, Hook: true, Starter: s}
}

// jobOn is a job as a hook tells of it.
func jobOn(s starter.Starter, owner string, u gpu.UUID, mib int64) *api.Job {
	return &api.Job{
		ID: strings.TrimPrefix(s.Slot, "slot") + ".0", Owner: owner, AssignedGPUs: []string{string(u)},
		ProvisionedVRAM: vram(mib), RequestVRAM: vram(mib), RequestGPUs: vram(1),
	}
}

// Package jobs keeps the table of running jobs: which HTCondor slot has which GPU, or
// which part of one, since when, and by whose word. It decides nothing and asks nobody.
//
// Start at Table. A job's life in it is Admit (decide on the job and enter it, in one
// step), Settle (compare the table with HTCondor's ads, which count where they differ) and
// DropEnded (its condor_starter has ended). Await and Discover take in starters whose jobs
// nobody has asked for: those from before the agent started, and those of an observed node.
// Hold notes jobs that HTCondor is to hold, Reserve and Leave MIG devices that are to go.
//
// A Job is one entry, and View shows all of them at one time.
package jobs

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Processes are those of this node; starter.Node is the real one. The table asks while it
// holds its lock, so that no job ends unseen in between: no method may wait.
type Processes interface {
	// Runs says whether a process still runs.
	Runs(p process.ID) bool
	// Identify finds the slot of a process: see starter.Node.Identify.
	Identify(uid uint32, pid int) (starter.Caller, error)
	// OriginOf is who began a process, and when: see starter.Node.OriginOf.
	OriginOf(pid int) starter.Origin
}

// Table is the agent's own word on who runs where: entered at admission, corrected by
// HTCondor's ads, gone with the starter. All its methods may be called by several
// goroutines at a time. Admit and Look are the ways to see several facts of one time.
//
// Nothing is written and nobody is asked while mu is held, and no other lock is taken but
// by the functions that Admit and Look call.
type Table struct {
	mu   sync.Mutex
	view View
}

// New returns a table without jobs.
func New(p Processes) *Table {
	return &Table{view: View{
		processes: p, elsewhere: map[process.ID]bool{}, holds: map[starter.Starter]api.Hold{}, full: map[gpu.UUID]bool{},
	}}
}

// Admit is the only way to decide on a job and to enter it in one step: nobody else
// enters one between what the view shows and the end of decide, so that two jobs cannot
// both get the last share. It enters what decide returns, one entry for each GPU of the
// caller's job; to refuse the job, decide returns none. Decide must not wait, and must
// not call the table: it has the view.
//
// Of an entry of the same starter and GPU a hook, or a caller whom HTCondor's ad confirms,
// replaces the words until the ad has confirmed them, and nobody else does: by them a job
// is held, recorded and told from others.
func (t *Table) Admit(c starter.Caller, decide func(v *View) []Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range decide(&t.view) {
		t.view.enter(j, c.Hook || c.Confirmed)
	}
}

// Look shows several facts of one time. What Admit says of decide holds for at.
func (t *Table) Look(at func(v *View)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at(&t.view)
}

// Running are the jobs in the order of their admission, one entry for each GPU that a job has.
func (t *Table) Running() []Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.view.jobs)
}

// Since are the jobs that had a part of a GPU at a time or later. Those that have ended are known for a minute.
func (t *Table) Since(u gpu.UUID, begin time.Time) []Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.view.On(u)
	for _, e := range t.view.ended {
		if e.GPU == u && !e.seen.Before(begin) {
			out = append(out, e.Job)
		}
	}
	return out
}

// HeldBy are the entries of a starter's job, one for each of its GPUs.
func (t *Table) HeldBy(s starter.Starter) []Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.HeldBy(s)
}

// Has says whether a starter's job has a part of a GPU.
func (t *Table) Has(s starter.Starter, u gpu.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.Has(s, u)
}

// Busy says whether some job has a part of a GPU.
func (t *Table) Busy(u gpu.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.view.On(u)) > 0
}

// Unknown says which job ran before the agent started and has a GPU that is not known;
// empty if there is none.
func (t *Table) Unknown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.Unknown()
}

// Needs says whether a job needs its account's access to a GPU. A job whose GPU or
// account is not known yet may be anybody's.
func (t *Table) Needs(u gpu.UUID, uid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.view.unplaced) > 0 || slices.ContainsFunc(t.view.jobs, func(j Job) bool {
		return j.GPU == u && (!j.Account.Known || j.Account.UID == uid)
	})
}

// Release drops the entry of a job that came to nothing.
func (t *Table) Release(s starter.Starter, u gpu.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.view.jobs = slices.DeleteFunc(t.view.jobs, func(j Job) bool { return j.Starter.Is(s) && j.GPU == u })
}

// DropEnded drops the jobs whose starters have ended, and returns them.
func (t *Table) DropEnded() []Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.DropEnded()
}

// NewPlan forgets which GPUs were full under the plan before.
func (t *Table) NewPlan() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.view.full)
}

// PutElsewhere notes that a starter's slot has no GPU of the plan, by HTCondor's word.
func (t *Table) PutElsewhere(s starter.Starter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.view.elsewhere[s.ID] = true
}

// Hold notes that HTCondor is to hold a job; false if that was noted before, or the job is
// not in the table. It stays so until the job ends: a job that was told to go does not come
// back because its memory was taken.
func (t *Table) Hold(s starter.Starter, h api.Hold) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, before := t.view.holds[s]; before || len(t.view.HeldBy(s)) == 0 {
		return false
	}
	t.view.holds[s] = h
	return true
}

// HoldOf is the hold of a job; its Code is 0 if there is none.
func (t *Table) HoldOf(s starter.Starter) api.Hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.holds[s]
}

// ToBeHeld are the starters of the jobs that HTCondor is to hold.
func (t *Table) ToBeHeld() map[starter.Starter]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[starter.Starter]bool{}
	for s := range t.view.holds {
		all[s] = true
	}
	return all
}

// Holds are the jobs that HTCondor is to hold, in the order of their slots.
func (t *Table) Holds() []api.Hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.view.holds), func(x, y api.Hold) int { return cmp.Compare(x.Slot, y.Slot) })
}

// Reserve keeps new jobs off MIG devices that are about to go. If a job has one already
// nothing is reserved, and its slot returned.
func (t *Table) Reserve(devices []gpu.UUID) (held string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.view.jobs {
		if slices.Contains(devices, j.GPU) || slices.Contains(devices, j.Device) {
			return j.Starter.Slot
		}
	}
	leaving := maps.Clone(t.view.leaving)
	if leaving == nil {
		leaving = map[gpu.UUID]string{}
	}
	for _, u := range devices {
		leaving[u] = IsLeaving
	}
	t.view.leaving = leaving
	return ""
}

// IsLeaving is why a MIG device takes no new jobs while its GPU gets another layout.
const IsLeaving = "its GPU gets another MIG layout in which it has no place: see gpuslot status"

// Leave sets which MIG devices take no new jobs because they wait to go, and why.
func (t *Table) Leave(devices map[gpu.UUID]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.view.leaving = devices
}

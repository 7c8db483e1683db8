package agent

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Running is a slot whose job holds a part of a GPU, or a whole one.
type Running struct {
	Starter starter.Starter
	GPU     gpu.UUID
	// Device is the MIG device that the job got at a place of a layout; empty
	// elsewhere, and where it is not known.
	Device gpu.UUID
	// Budget is the slot's VRAM; on a whole GPU all of it.
	Budget gpu.MiB
	// Account is the one the job runs as.
	Account starter.Account
	// Owner and Job are HTCondor's words for messages and ads: the job ad's
	// Owner and "cluster.proc".
	Owner, Job string
	// Group and VO are the job's accounting group and virtual organisation.
	Group, VO string
	Work      Work
	Wall      string
	Since     time.Time
	// Confirmed: the startd's own ads agree.
	Confirmed bool
	// Beside: the GPU was observed, and another job had it at the same time.
	Beside bool
	// Adopted: it ran before the agent started. Hold is set when it ended.
	Adopted bool
	Hold    api.Hold
}

// tenant names the account for people.
func (r Running) tenant() string {
	switch {
	case r.Owner != "":
		return r.Owner
	case r.Account.Known:
		return fmt.Sprintf("uid %d", r.Account.UID)
	}
	return "the job of " + r.Starter.Slot
}

// unplaced is a starter from before the agent's start.
type unplaced struct {
	starter.Starter
	// asked counts the times that the startd told of its slots, but not of this.
	asked int
	// fresh: it came while the agent looked on.
	fresh bool
}

// jobTable is the agent's own word on who runs where: entered at admission, corrected by
// the startd's ads, gone with the starter. All its methods may be called by several
// goroutines at a time. Admit and Look are the ways to see several facts of one time.
//
// Nothing is written and nobody is asked while the lock is held. What /proc says of a
// starter is read under it: that does not wait, and a job must not end unseen in between.
type jobTable struct {
	mu sync.Mutex
	jobView
	// linkTurn is held while holds are shown to supervisors.
	linkTurn sync.Mutex
}

// jobView is what the job table has. Its methods are for who holds the table's lock: the
// methods of jobTable, and the functions that Admit and Look call. None of them may call
// a method of jobTable or keep the view.
type jobView struct {
	proc starter.Node

	slots []Running
	// unplaced are starters from before the agent's start, of whose GPU the
	// startd has not told yet.
	unplaced []unplaced
	// elsewhere are starters whose slots have no GPU of the plan, by the startd's
	// word: all such of an observed node, and those whose jobs asked for one.
	elsewhere map[process.ID]bool
	// holds are the jobs that HTCondor is to hold, by their starters.
	holds map[starter.Starter]api.Hold
	// turns are the ends of jobs that are asked for.
	turns map[starter.Starter]*endTurn
	// leaving are MIG devices that wait to go, or for a larger one in their room,
	// each with the reason.
	leaving map[gpu.UUID]string
	// group are the elastic GPUs.
	group group
	// asked are the questions so far, by starter.
	asked map[process.ID]questions
	// full are GPUs on which the startd wanted more than the plan has.
	full map[gpu.UUID]bool
}

func newJobTable(proc starter.Node) *jobTable {
	return &jobTable{
		jobView: jobView{
			proc: proc, elsewhere: map[process.ID]bool{}, asked: map[process.ID]questions{},
			holds: map[starter.Starter]api.Hold{}, turns: map[starter.Starter]*endTurn{}, full: map[gpu.UUID]bool{},
		},
	}
}

// Admit is the only way to decide on a job and to enter it in one step: nobody else
// enters one between what the view shows and the end of the function, so that two jobs
// cannot both get the last share.
func (b *jobTable) Admit(admit func(v *jobView) (*api.Grant, *api.Refusal)) (*api.Grant, *api.Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return admit(&b.jobView)
}

// Look shows several facts of one time.
func (b *jobTable) Look(at func(v *jobView)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at(&b.jobView)
}

// runningOn are the jobs on one GPU.
func (b *jobTable) runningOn(u gpu.UUID) (running []Running) {
	b.Look(func(v *jobView) { running = v.on(u) })
	return running
}

// heldBy are the GPUs of a starter's job.
func (b *jobTable) heldBy(s starter.Starter) (held []Running) {
	b.Look(func(v *jobView) { held = v.held(s) })
	return held
}

// on are the slots of one GPU.
func (v *jobView) on(u gpu.UUID) []Running {
	var out []Running
	for _, r := range v.slots {
		if r.GPU == u {
			out = append(out, r)
		}
	}
	return out
}

// all is a copy, in the order of admission.
func (b *jobTable) all() []Running {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.slots)
}

// enter takes a job into the table. Of an entry of the same starter and GPU a hook replaces the
// words until the startd has confirmed them, and nobody else does: by them a job
// is held, recorded and told from others.
func (v *jobView) enter(r Running, hook bool) {
	for i, old := range v.slots {
		if !old.Starter.Is(r.Starter) || old.GPU != r.GPU {
			continue
		}
		if old.Confirmed || !hook {
			if !old.Account.Known {
				v.slots[i].Account = r.Account
			}
			return
		}
		r.Since, r.Work = old.Since, r.Work.or(old.Work)
		v.slots[i] = r
		return
	}
	v.slots = append(v.slots, r)
}

// dropEnded drops the slots whose starters have ended, and returns them.
func (b *jobTable) dropEnded() (ended []Running) {
	b.Look(func(v *jobView) { ended = v.dropEnded() })
	return ended
}

// release drops the entry of a job that came to nothing.
func (b *jobTable) release(s starter.Starter, u gpu.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots = slices.DeleteFunc(b.slots, func(r Running) bool { return r.Starter.Is(s) && r.GPU == u })
}

// needs says whether a job needs its account's access to a GPU. A slot whose GPU or
// account is not known yet may be anybody's.
func (b *jobTable) needs(u gpu.UUID, uid uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.unplaced) > 0 || slices.ContainsFunc(b.slots, func(r Running) bool {
		return r.GPU == u && (!r.Account.Known || r.Account.UID == uid)
	})
}

// dropEnded drops the slots whose starters have ended, and returns them.
func (v *jobView) dropEnded() (ended []Running) {
	v.slots = slices.DeleteFunc(v.slots, func(r Running) bool {
		if v.proc.Runs(r.Starter.ID) {
			return false
		}
		r.Hold = v.holds[r.Starter]
		ended = append(ended, r)
		delete(v.full, r.GPU)
		delete(v.turns, r.Starter)
		delete(v.asked, r.Starter.ID)
		return true
	})
	for _, r := range ended {
		delete(v.holds, r.Starter)
	}
	v.unplaced = slices.DeleteFunc(v.unplaced, func(s unplaced) bool { return !v.proc.Runs(s.ID) })
	maps.DeleteFunc(v.elsewhere, func(s process.ID, _ bool) bool { return !v.proc.Runs(s) })
	return ended
}

// newPlan forgets what was full under the plan before.
func (b *jobTable) newPlan() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.full)
}

// busy: some slot holds a part of the GPU.
func (b *jobTable) busy(u gpu.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.on(u)) > 0
}

// unknown says which slots ran before the agent and cannot be placed; empty if
// all can.
func (b *jobTable) unknown() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whyUnknown()
}

func (v *jobView) whyUnknown() string {
	if len(v.unplaced) == 0 {
		return ""
	}
	return fmt.Sprintf("%s runs since before gpuslotd started and the startd has not told on which GPU: see whether condor_status -direct \"\" answers", v.unplaced[0].Slot)
}

// held are the entries of one starter.
func (v *jobView) held(s starter.Starter) []Running {
	var out []Running
	for _, r := range v.slots {
		if r.Starter.Is(s) {
			out = append(out, r)
		}
	}
	return out
}

// starterOf is the starter of a slot that has been admitted, for a job's process
// that left its parents behind.
func (v *jobView) starterOf(slot string) (starter.Starter, bool) {
	for _, r := range v.slots {
		if starter.SameSlot(r.Starter.Slot, slot) && v.proc.Runs(r.Starter.ID) {
			return r.Starter, true
		}
	}
	return starter.Starter{}, false
}

// await takes note, at the start of the agent, of the starters that run already.
func (b *jobTable) await(found []starter.Starter) {
	b.Look(func(v *jobView) {
		for _, s := range found {
			v.unplaced = append(v.unplaced, unplaced{Starter: s})
		}
	})
}

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

// unbooked is a starter from before the agent's start.
type unbooked struct {
	starter.Starter
	// asked counts the times that the startd told of its slots, but not of this.
	asked int
	// fresh: it came while the agent looked on.
	fresh bool
}

// books are the agent's own word on who runs where: entered at admission,
// corrected by the startd's ads, gone with the starter.
type books struct {
	proc  starter.Node
	doors Doors

	mu    sync.Mutex
	slots []Running
	// unbooked are starters from before the agent's start, of whose GPU the
	// startd has not told yet.
	unbooked []unbooked
	// elsewhere are starters whose slots have no GPU of the plan, by the startd's
	// word: all such of an observed node, and those whose jobs asked for one.
	elsewhere map[process.ID]bool
	open      map[door]bool
	// holds are the jobs that HTCondor is to hold, by their starters.
	holds map[starter.Starter]api.Hold
	// linkTurn is held while holds are shown to supervisors.
	linkTurn sync.Mutex
	// turns are the ends of jobs that are asked for.
	turns map[starter.Starter]*endTurn
	// leaving are MIG devices that wait to go, or for a larger one in their room,
	// each with the reason.
	leaving map[gpu.UUID]string
	// group are the elastic GPUs.
	group group
	// asked are the questions so far, by starter.
	asked map[process.ID]questions
	// left is when the last job of an account left a GPU that it had been let into.
	left map[door]time.Time
	// full are GPUs on which the startd wanted more than the plan has.
	full map[gpu.UUID]bool
}

func newBooks(proc starter.Node, doors Doors) *books {
	return &books{proc: proc, doors: doors, elsewhere: map[process.ID]bool{}, asked: map[process.ID]questions{}, left: map[door]time.Time{}, open: map[door]bool{}, holds: map[starter.Starter]api.Hold{}, turns: map[starter.Starter]*endTurn{}, full: map[gpu.UUID]bool{}}
}

// on are the slots of one GPU. The caller holds mu.
func (b *books) on(u gpu.UUID) []Running {
	var out []Running
	for _, r := range b.slots {
		if r.GPU == u {
			out = append(out, r)
		}
	}
	return out
}

// all is a copy, in the order of admission.
func (b *books) all() []Running {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.slots)
}

// enter books a slot. Of an entry of the same starter and GPU a hook replaces the
// words until the startd has confirmed them, and nobody else does: by them a job
// is held, recorded and told from others. The caller holds mu.
func (b *books) enter(r Running, hook bool) {
	for i, old := range b.slots {
		if !old.Starter.Is(r.Starter) || old.GPU != r.GPU {
			continue
		}
		if old.Confirmed || !hook {
			if !old.Account.Known {
				b.slots[i].Account = r.Account
			}
			return
		}
		r.Since, r.Work = old.Since, r.Work.or(old.Work)
		b.slots[i] = r
		return
	}
	b.slots = append(b.slots, r)
}

// sweep drops the slots whose starters have ended and closes the doors that
// nobody needs any more. It returns what ended.
func (b *books) sweep() (ended []Running, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sweepLocked()
}

func (b *books) sweepLocked() (ended []Running, err error) {
	b.slots = slices.DeleteFunc(b.slots, func(r Running) bool {
		if b.proc.Runs(r.Starter.ID) {
			return false
		}
		r.Hold = b.holds[r.Starter]
		ended = append(ended, r)
		delete(b.full, r.GPU)
		delete(b.turns, r.Starter)
		delete(b.asked, r.Starter.ID)
		return true
	})
	for _, r := range ended {
		delete(b.holds, r.Starter)
	}
	b.unbooked = slices.DeleteFunc(b.unbooked, func(s unbooked) bool { return !b.proc.Runs(s.ID) })
	maps.DeleteFunc(b.elsewhere, func(s process.ID, _ bool) bool { return !b.proc.Runs(s) })
	for d := range b.open {
		if b.needs(d) {
			continue
		}
		if e := b.doors.Revoke(d.gpu, d.uid); e != nil {
			err = fmt.Errorf("close the pipe directory of %s to uid %d: %w", d.gpu, d.uid, e)
			continue // tried again at the next sweep
		}
		delete(b.open, d)
		b.left[d] = time.Now()
	}
	return ended, err
}

// newPlan forgets what was full under the plan before.
func (b *books) newPlan() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.full)
}

// busy: some slot holds a part of the GPU.
func (b *books) busy(u gpu.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.on(u)) > 0
}

// unknown says which slots ran before the agent and cannot be placed; empty if
// all can.
func (b *books) unknown() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unknownLocked()
}

func (b *books) unknownLocked() string {
	if len(b.unbooked) == 0 {
		return ""
	}
	return fmt.Sprintf("%s runs since before gpuslotd started and the startd has not told on which GPU: see whether condor_status -direct \"\" answers", b.unbooked[0].Slot)
}

// held are the entries of one starter. The caller holds mu.
func (b *books) held(s starter.Starter) []Running {
	var out []Running
	for _, r := range b.slots {
		if r.Starter.Is(s) {
			out = append(out, r)
		}
	}
	return out
}

// starterOf is the starter of a slot that has been admitted, for a job's process
// that left its parents behind. The caller holds mu.
func (b *books) starterOf(slot string) (starter.Starter, bool) {
	for _, r := range b.slots {
		if starter.SameSlot(r.Starter.Slot, slot) && b.proc.Runs(r.Starter.ID) {
			return r.Starter, true
		}
	}
	return starter.Starter{}, false
}

// rebuild finds, at the start of the agent, the starters that run already and
// the doors that are open.
func (b *books) rebuild() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range (&starter.Arrivals{}).New(b.proc, time.Now()) {
		b.unbooked = append(b.unbooked, unbooked{Starter: s})
	}
	open, err := b.doors.Admitted()
	for _, d := range open {
		b.open[d] = true
	}
	return err
}

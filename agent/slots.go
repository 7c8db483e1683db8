package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Running is a slot whose job holds a part of a GPU, or a whole one.
type Running struct {
	Starter Starter
	GPU     gpu.UUID
	// Budget is the slot's VRAM; on a whole GPU all of it.
	Budget gpu.MiB
	// Account is the one the job runs as.
	Account Account
	// Owner and Job are HTCondor's words for messages and ads: the job ad's
	// Owner and "cluster.proc".
	Owner, Job string
	Wall       string
	Since      time.Time
	// Confirmed: the startd's own ads agree.
	Confirmed bool
}

func (s Starter) is(o Starter) bool { return s.PID == o.PID && s.Started == o.Started }

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

// Doors opens and closes a GPU's pipe directory for one account. All calls are
// repeatable.
type Doors interface {
	Admit(u gpu.UUID, uid uint32) error
	Revoke(u gpu.UUID, uid uint32) error
	// Admitted lists the accounts that it is open to.
	Admitted(u gpu.UUID) ([]uint32, error)
}

// door is one account's access to one GPU's pipe directory.
type door struct {
	gpu gpu.UUID
	uid uint32
}

// unbooked is a starter from before the agent's start.
type unbooked struct {
	Starter
	// asked counts the times that the startd told of its slots, but not of this.
	asked int
}

// books are the agent's own word on who runs where: entered at admission,
// corrected by the startd's ads, gone with the starter.
type books struct {
	proc  procFS
	doors Doors

	mu    sync.Mutex
	slots []Running
	// unbooked are starters from before the agent's start, of whose GPU the
	// startd has not told yet.
	unbooked []unbooked
	open     map[door]bool
	// full are GPUs on which the startd wanted more than the plan has.
	full map[gpu.UUID]bool
}

func newBooks(proc procFS, doors Doors) *books {
	return &books{proc: proc, doors: doors, open: map[door]bool{}, full: map[gpu.UUID]bool{}}
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

// enter books a slot in place of any entry of the same starter and GPU. The
// caller holds mu.
func (b *books) enter(r Running) {
	for i, old := range b.slots {
		if old.Starter.is(r.Starter) && old.GPU == r.GPU {
			r.Since, r.Confirmed = old.Since, old.Confirmed && old.Budget == r.Budget
			b.slots[i] = r
			return
		}
	}
	b.slots = append(b.slots, r)
}

// admitAccount opens the pipe directory unless it is known to be open. The
// caller holds mu, so that no revocation comes between.
func (b *books) admitAccount(u gpu.UUID, uid uint32) error {
	d := door{u, uid}
	if b.open[d] {
		return nil
	}
	if err := b.doors.Admit(u, uid); err != nil {
		return err
	}
	b.open[d] = true
	return nil
}

// reopen opens again all doors of a GPU that should be open.
func (b *books) reopen(u gpu.UUID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for d := range b.open {
		if d.gpu != u {
			continue
		}
		if err := b.doors.Admit(u, d.uid); err != nil {
			errs = append(errs, fmt.Errorf("open the pipe directory of %s to uid %d again: %w", u, d.uid, err))
		}
	}
	return errors.Join(errs...)
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
		if b.proc.alive(r.Starter.PID, r.Starter.Started) {
			return false
		}
		ended = append(ended, r)
		delete(b.full, r.GPU)
		return true
	})
	b.unbooked = slices.DeleteFunc(b.unbooked, func(s unbooked) bool { return !b.proc.alive(s.PID, s.Started) })
	for d := range b.open {
		if b.needs(d) {
			continue
		}
		if e := b.doors.Revoke(d.gpu, d.uid); e != nil {
			err = fmt.Errorf("close the pipe directory of %s to uid %d: %w", d.gpu, d.uid, e)
			continue // tried again at the next sweep
		}
		delete(b.open, d)
	}
	return ended, err
}

// needs: a slot whose account is not known yet may be anybody's.
func (b *books) needs(d door) bool {
	return len(b.unbooked) > 0 || slices.ContainsFunc(b.slots, func(r Running) bool {
		return r.GPU == d.gpu && (!r.Account.Known || r.Account.UID == d.uid)
	})
}

// forget takes an entry back whose admission could not be completed. The
// caller holds mu.
func (b *books) forget(s Starter, u gpu.UUID) {
	b.slots = slices.DeleteFunc(b.slots, func(r Running) bool { return r.Starter.is(s) && r.GPU == u })
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
func (b *books) held(s Starter) []Running {
	var out []Running
	for _, r := range b.slots {
		if r.Starter.is(s) {
			out = append(out, r)
		}
	}
	return out
}

// starterOf is the starter of a slot that has been admitted, for a job's process
// that left its parents behind. The caller holds mu.
func (b *books) starterOf(slot string) (Starter, bool) {
	for _, r := range b.slots {
		if sameSlot(r.Starter.Slot, slot) && b.proc.alive(r.Starter.PID, r.Starter.Started) {
			return r.Starter, true
		}
	}
	return Starter{}, false
}

// rebuild finds, at the start of the agent, the starters that run already and
// the doors that are open.
func (b *books) rebuild(trusted func(uint32) bool, daemons []mps.Wanted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, pid := range b.proc.pids() {
		p, err := b.proc.process(pid)
		if err != nil || p.gone() || p.Comm != starterProgram || b.proc.isHTCondor(p, trusted) != nil {
			continue
		}
		if !b.proc.sameNamespace(pid) {
			continue // in a container: not the startd's of this node
		}
		slot, err := b.proc.starterSlot(pid)
		if err != nil {
			continue // a starter that is just being executed, or a self-test
		}
		b.unbooked = append(b.unbooked, unbooked{Starter: Starter{PID: pid, Started: p.Started, Slot: slot}})
	}
	for _, w := range daemons {
		uids, err := b.doors.Admitted(w.GPU)
		if err != nil {
			continue // no directory: nobody is in
		}
		for _, uid := range uids {
			b.open[door{w.GPU, uid}] = true
		}
	}
}

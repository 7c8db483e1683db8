package starter

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/accounts"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
)

// Account is an account of the node.
type Account struct {
	UID uint32
	// Known says that the UID is one; unknown is not root.
	Known bool
}

// Origin is when a process began, in the kernel's ticks, and its real account, which the
// process may have changed.
type Origin struct {
	Account
	Began uint64
}

// OriginOf is not known of a process that has ended. One with process.ErrHeld counts as one that began long ago.
func (n Node) OriginOf(pid int) Origin {
	p, no := n.Stat(pid)
	uid, _, err := process.RealUID(n.FS, pid)
	return Origin{Account{UID: uid, Known: err == nil && (no == nil || errors.Is(no, process.ErrHeld))}, p.Started}
}

// Before says that a process is of another account than a starter's job and began before the starter. The account
// alone says nothing: a job changes its own by setuid programs, also to those that /etc/subuid gives to its owner.
func (o Origin) Before(s Starter, of Account) bool {
	return o.Known && of.Known && o.UID != of.UID && o.Began < s.Started
}

// AccountNamed looks an account up; one that cannot be found is not known.
func AccountNamed(ctx context.Context, name string) Account {
	uid, known := accounts.UIDs(ctx, name)[name]
	return Account{UID: uid, Known: known}
}

// JobAccounts looks at all processes once and finds the account that a slot's job runs as: that of a child of its
// starter, else of a process below it in the slot's cgroup, else the owner's by name, else of another process in that
// cgroup that is no older than the starter. So what an earlier job left there says nothing beside the job.
func (n Node) JobAccounts(ctx context.Context, slots []condor.Slot) func(Starter, condor.Slot) Account {
	all := n.accounts()
	pids := slices.Sorted(maps.Keys(all))
	var owners []string
	for _, s := range slots {
		owners = append(owners, s.Owner())
	}
	byName := accounts.UIDs(ctx, owners...)
	return func(s Starter, ad condor.Slot) Account {
		best, by := Account{}, 0
		for _, pid := range pids {
			if how := all.trust(pid, s); how > by && all[pid].uid != 0 {
				best, by = Account{UID: all[pid].uid, Known: true}, how
			}
		}
		if uid, known := byName[ad.Owner()]; known && by <= inItsCgroup {
			return Account{UID: uid, Known: true}
		}
		return best
	}
}

// How far a process's account counts as that of a starter's job.
const (
	inItsCgroup = 1 + iota
	belowInItsCgroup
	child
	childInItsCgroup
)

// placesWithin is how long the places of all processes may take together, and what those of one owner, or four, are.
const placesWithin = 2 * time.Second

// ofNode are the processes of the node by PID.
type ofNode map[int]ofProcess

type ofProcess struct {
	parent  int
	started uint64
	uid     uint32
	// slot is empty of a process in no slot's cgroup.
	slot string
}

// accounts reads the accounts and places of all processes, except the places of root's. A job can have the kernel take
// long over both. So those of one account wait for no other's place, and what is not read in time is left out.
func (n Node) accounts() ofNode {
	all, wanted := ofNode{}, map[string][]process.ID{}
	pids, _ := n.PIDs() // of those that are not listed nothing is known
	one := n
	one.Daemons = nil // what was kept may be older than one of the processes
	n.pass = sync.OnceValues(func() (deep.Looks, error) { return one.intoSlots(0) })
	took, users := map[uint32]time.Duration{}, time.Duration(0) // by owner
	for _, pid := range pids {
		its, err := n.Owner(pid)
		of := reads.OwnerOf(its.UID)
		if err != nil || of != 0 && max(took[of], users/4) > placesWithin {
			continue
		}
		begin := time.Now()
		uids, err := n.UIDs(pid)
		p, no := n.Stat(pid)
		if !n.SameUsers(pid) {
			uids.Real = 0 // a job's own, of those that /etc/subuid gives to its owner
		}
		if took[of] += time.Since(begin); of != 0 {
			users += time.Since(begin)
		}
		if err != nil || no != nil || p.Ended() {
			continue
		}
		all[pid] = ofProcess{parent: p.Parent, started: p.Started, uid: uids.Real}
		if uids.Real != 0 {
			group := strconv.FormatUint(uint64(uids.Real), 10)
			wanted[group] = append(wanted[group], process.ID{PID: pid, Started: p.Started})
		}
	}
	places := deep.NewQuestions(func(id process.ID) string {
		in, _ := n.cgroupSlot(id.PID) // with an error it is in none
		return condor.SlotName(in)
	})
	for id, slot := range places.Ask(wanted)(time.Now().Add(placesWithin)) {
		of := all[id.PID]
		of.slot = slot
		all[id.PID] = of
	}
	places.Ask(nil) // the others need no answer any more
	return all
}

// trust says how far a process counts as one of a starter's job; 0 is not at all.
func (all ofNode) trust(pid int, s Starter) int {
	p := all[pid]
	inside := p.slot != "" && p.slot == condor.SlotName(s.Slot)
	switch {
	case p.parent == s.PID && inside:
		return childInItsCgroup
	case p.parent == s.PID:
		return child
	case !inside:
		return 0
	}
	for up, steps := p.parent, 0; up > 1 && steps < len(all); up, steps = all[up].parent, steps+1 {
		if up == s.PID {
			return belowInItsCgroup
		}
	}
	if p.started < s.Started {
		return 0
	}
	return inItsCgroup
}

package agent

import (
	"context"
	"os/user"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
)

// lookupTimeout bounds one look into the account database, which may be on the
// network and cannot be interrupted.
const lookupTimeout = 3 * time.Second

// accountNamed looks an account up; unknown is a value.
func accountNamed(ctx context.Context, name string) Account {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found := make(chan Account, 1) // nobody may be left to receive
	go func() {
		u, err := user.Lookup(name)
		if err != nil {
			found <- Account{}
			return
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		found <- Account{UID: uint32(uid), Known: err == nil}
	}()
	select {
	case a := <-found:
		return a
	case <-ctx.Done():
		return Account{}
	}
}

// accounts looks up the accounts that tenancies name, and trusts what it found
// before until the configuration is read again.
func accounts(ctx context.Context, p plan.Plan, old map[string]Account, again bool) map[string]Account {
	m := map[string]Account{}
	for _, g := range p.GPUs {
		name := g.Tenancy.User
		if _, done := m[name]; name == "" || done {
			continue
		}
		if m[name] = old[name]; again || !m[name].Known {
			m[name] = accountNamed(ctx, name)
		}
	}
	return m
}

// accounts looks at all processes once and finds the account that a slot's job
// runs as: that of any process below the starter or in the slot's cgroup, else
// the owner's by name.
func (fs procFS) accounts(ctx context.Context, slots []condor.Slot) func(Starter, condor.Slot) Account {
	byParent, bySlot := map[int]uint32{}, map[string]uint32{}
	for _, pid := range fs.pids() {
		p, err := fs.process(pid)
		if err != nil || p.gone() {
			continue
		}
		uid, err := fs.realUID(pid)
		if err != nil || uid == 0 {
			continue
		}
		byParent[p.Parent] = uid
		if in, err := fs.cgroupSlot(pid); err == nil && in != "" {
			bySlot[shortName(in)] = uid
		}
	}
	byName := map[string]Account{}
	for _, s := range slots {
		if owner := ownerOf(s); owner != "" {
			byName[owner] = accountNamed(ctx, owner)
		}
	}
	return func(s Starter, ad condor.Slot) Account {
		if uid, ok := bySlot[shortName(s.Slot)]; ok {
			return Account{UID: uid, Known: true}
		}
		if uid, ok := byParent[s.PID]; ok {
			return Account{UID: uid, Known: true}
		}
		return byName[ownerOf(ad)]
	}
}

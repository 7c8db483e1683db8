package agent

import (
	"context"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
)

// lookupTimeout bounds one look into the account database, which may be on the
// network and cannot be interrupted.
const lookupTimeout = 3 * time.Second

// accountDatabase finds accounts by name. A lookup that hangs keeps its place until
// it returns, so that a database that does not answer costs a few goroutines at most.
type accountDatabase struct {
	places chan struct{}
	find   func(name string) (*user.User, error)
}

// accountsOfNode is NSS: files, LDAP, SSSD.
var accountsOfNode = accountDatabase{make(chan struct{}, 4), user.Lookup}

// look finds an account, or gives up when its time is over.
func (d accountDatabase) look(ctx context.Context, name string) (*user.User, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	select {
	case d.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("the account database does not answer (getent passwd %s): %w", name, ctx.Err())
	}
	type answer struct {
		user *user.User
		err  error
	}
	found := make(chan answer, 1) // buffered: the receiver may have given up
	go func() {
		defer func() { <-d.places }()
		u, err := d.find(name)
		found <- answer{u, err}
	}()
	select {
	case a := <-found:
		return a.user, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the account database does not answer (getent passwd %s): %w", name, ctx.Err())
	}
}

// accountNamed looks an account up; unknown is a value.
func accountNamed(ctx context.Context, name string) Account {
	u, err := accountsOfNode.look(ctx, name)
	if err != nil {
		return Account{}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	return Account{UID: uint32(uid), Known: err == nil}
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
	for _, pid := range fs.PIDs() {
		p, err := fs.Stat(pid)
		if err != nil || p.Ended() {
			continue
		}
		uids, err := fs.UIDs(pid)
		if err != nil || uids.Real == 0 {
			continue
		}
		byParent[p.Parent] = uids.Real
		if in, err := fs.cgroupSlot(pid); err == nil && in != "" {
			bySlot[shortName(in)] = uids.Real
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

package starter

import (
	"context"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/condor"
)

// Account is an account of the node.
type Account struct {
	UID uint32
	// Known says that the UID is one; unknown is not root.
	Known bool
}

// lookupTimeout bounds one look into the account database, which may be on the
// network and cannot be interrupted.
const lookupTimeout = 3 * time.Second

// Database finds accounts by name. A lookup that hangs keeps its place until
// it returns, so that a database that does not answer costs a few goroutines at most.
type Database struct {
	places chan struct{}
	find   func(name string) (*user.User, error)
}

// NewDatabase bounds the lookups of a function such as user.Lookup.
func NewDatabase(find func(name string) (*user.User, error)) Database {
	return Database{make(chan struct{}, 4), find}
}

// accountsOfNode is NSS: files, LDAP, SSSD.
var accountsOfNode = NewDatabase(user.Lookup)

// LookUp finds an account of the node by its name, within 3 s.
func LookUp(ctx context.Context, name string) (*user.User, error) {
	return accountsOfNode.LookUp(ctx, name)
}

// LookUp finds an account, or gives up after 3 s.
func (d Database) LookUp(ctx context.Context, name string) (*user.User, error) {
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

// AccountNamed looks an account up; one that cannot be found is not known.
func AccountNamed(ctx context.Context, name string) Account {
	u, err := LookUp(ctx, name)
	if err != nil {
		return Account{}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	return Account{UID: uint32(uid), Known: err == nil}
}

// JobAccounts looks at all processes once and finds the account that a slot's job
// runs as: that of any process below the starter or in the slot's cgroup, else
// the owner's by name.
func (n Node) JobAccounts(ctx context.Context, slots []condor.Slot) func(Starter, condor.Slot) Account {
	byParent, bySlot := map[int]uint32{}, map[string]uint32{}
	for _, pid := range n.PIDs() {
		p, err := n.Stat(pid)
		if err != nil || p.Ended() {
			continue
		}
		uids, err := n.UIDs(pid)
		if err != nil || uids.Real == 0 {
			continue
		}
		byParent[p.Parent] = uids.Real
		if in, err := n.cgroupSlot(pid); err == nil && in != "" {
			bySlot[condor.SlotName(in)] = uids.Real
		}
	}
	byName := map[string]Account{}
	for _, s := range slots {
		if owner := s.Owner(); owner != "" {
			byName[owner] = AccountNamed(ctx, owner)
		}
	}
	return func(s Starter, ad condor.Slot) Account {
		if uid, ok := bySlot[condor.SlotName(s.Slot)]; ok {
			return Account{UID: uid, Known: true}
		}
		if uid, ok := byParent[s.PID]; ok {
			return Account{UID: uid, Known: true}
		}
		return byName[ad.Owner()]
	}
}

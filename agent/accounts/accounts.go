// Package accounts finds accounts of the node by their names, in a database that may be on the network and hang.
// Start at LookUp, or at UIDs for many names.
package accounts

import (
	"context"
	"fmt"
	"os/user"
	"strconv"
	"time"
)

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

// UIDs are the numbers of the accounts with these names, without those that are not found within 3 s.
func UIDs(ctx context.Context, names ...string) map[string]uint32 {
	return accountsOfNode.UIDs(ctx, names...)
}

// UIDs looks up each name once: a database that hangs takes 3 s for each.
func (d Database) UIDs(ctx context.Context, names ...string) map[string]uint32 {
	found, asked := map[string]uint32{}, map[string]bool{"": true}
	for _, name := range names {
		if asked[name] {
			continue
		}
		asked[name] = true
		u, err := d.LookUp(ctx, name)
		if err != nil {
			continue
		}
		if uid, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			found[name] = uint32(uid)
		}
	}
	return found
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

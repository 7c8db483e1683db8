package server

import (
	"container/list"
	"sync"
)

// How many connections may wait for the agent to read their request: of one account, and of
// all accounts. A request follows its connection within microseconds.
const (
	mostSilent      = 256
	mostSilentInAll = 2048
)

// silent keeps silent connections from filling the agent. Above the limit of an account a
// newcomer takes the place of that account's longest silent connection, so that the account's
// own hooks still get through. Above the limit of all it takes a place from the owner that has
// most: a user with a range in /etc/subuid connects as thousands of accounts.
type silent struct {
	each, all int
	exempt    func(uid uint32) bool

	mu               sync.Mutex
	sum              int
	accounts, owners queues
}

// waiter is one silent connection, with its places in both queues.
type waiter struct {
	uid, owner       uint32
	end              func()
	ofAccount, ofAll *list.Element
	gone             bool
}

func newSilent(each, all int, exempt func(uid uint32) bool) *silent {
	return &silent{each: each, all: all, exempt: exempt, accounts: queues{}, owners: queues{}}
}

// enter counts a connection of an account and its owner until leave is called, which is when its
// request was read or it ended. End is called where another takes its place, and waits for nothing.
func (s *silent) enter(uid, owner uint32, end func()) (leave func()) {
	if s.exempt(uid) {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.accounts.len(uid) >= s.each:
		s.putOut(s.accounts.first(uid))
	case s.sum >= s.all:
		s.putOut(s.owners.first(s.owners.longest()))
	}
	w := &waiter{uid: uid, owner: owner, end: end}
	w.ofAccount, w.ofAll = s.accounts.add(uid, w), s.owners.add(owner, w)
	s.sum++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(w)
	}
}

// putOut ends a connection. Its reader ends and leaves, which then does nothing.
func (s *silent) putOut(w *waiter) {
	w.end()
	s.remove(w)
}

func (s *silent) remove(w *waiter) {
	if w.gone {
		return
	}
	w.gone = true
	s.accounts.remove(w.uid, w.ofAccount)
	s.owners.remove(w.owner, w.ofAll)
	s.sum--
}

// queues are lists of *waiter, the longest waiting first. None is empty.
type queues map[uint32]*list.List

func (q queues) len(key uint32) int {
	if l := q[key]; l != nil {
		return l.Len()
	}
	return 0
}

func (q queues) first(key uint32) *waiter { return q[key].Front().Value.(*waiter) }

// longest is the key of a queue that no other is longer than.
func (q queues) longest() (key uint32) {
	most := 0
	for k, l := range q {
		if l.Len() > most {
			key, most = k, l.Len()
		}
	}
	return key
}

func (q queues) add(key uint32, w *waiter) *list.Element {
	if q[key] == nil {
		q[key] = list.New()
	}
	return q[key].PushBack(w)
}

func (q queues) remove(key uint32, e *list.Element) {
	if q[key].Remove(e); q[key].Len() == 0 {
		delete(q, key)
	}
}

package agent

import (
	"container/list"
	"net"
	"sync"
)

// maxSilent is how many connections of one account may wait for the agent to
// read their request. A request follows its connection within microseconds.
const maxSilent = 256

// crowd keeps one account's silent connections from filling the agent: above
// the limit a newcomer takes the place of the longest silent one, so that the
// account's own hooks still get through.
type crowd struct {
	most   int
	exempt func(uid uint32) bool

	mu     sync.Mutex
	silent map[uint32]*list.List // of net.Conn, the longest waiting first
}

func newCrowd(most int, exempt func(uid uint32) bool) *crowd {
	return &crowd{most: most, exempt: exempt, silent: map[uint32]*list.List{}}
}

// enter counts a connection until leave is called, which is when its request
// was read or it ended.
func (c *crowd) enter(uid uint32, conn net.Conn) (leave func()) {
	if c.exempt(uid) {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.silent[uid]
	if l == nil {
		l = list.New()
		c.silent[uid] = l
	}
	if l.Len() >= c.most {
		oldest := l.Remove(l.Front()).(net.Conn)
		_ = oldest.Close() // its reader ends and leaves, which then does nothing
	}
	e := l.PushBack(conn)
	return func() { c.leave(uid, e) }
}

func (c *crowd) leave(uid uint32, e *list.Element) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.silent[uid]
	if l == nil {
		return
	}
	l.Remove(e) // nothing if it was put out already
	if l.Len() == 0 {
		delete(c.silent, uid)
	}
}

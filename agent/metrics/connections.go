package metrics

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many the HTTP listener has at a time. Every job of the
// node may connect, and file descriptors are the agent's for admissions as well.
const maxConnections = 256

// connections puts out the one that did nothing for longest where there are too
// many.
type connections struct {
	most int
	mu   sync.Mutex
	all  *list.List // of net.Conn, the longest without a change first
	at   map[net.Conn]*list.Element
}

func newConnections(most int) *connections {
	return &connections{most: most, all: list.New(), at: map[net.Conn]*list.Element{}}
}

// state is the server's ConnState.
func (c *connections) state(conn net.Conn, s http.ConnState) {
	if idle := c.note(conn, s); idle != nil {
		_ = clientOf(idle).drop()
	}
	if s == http.StateClosed || s == http.StateHijacked {
		clientOf(conn).ended()
	}
}

func (c *connections) note(conn net.Conn, s http.ConnState) (idle net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.at[conn]
	switch {
	case s == http.StateClosed || s == http.StateHijacked:
		c.drop(conn)
	case known:
		c.all.MoveToBack(e)
	case s == http.StateNew:
		c.at[conn] = c.all.PushBack(conn)
	}
	if c.all.Len() <= c.most {
		return nil
	}
	idle = c.all.Front().Value.(net.Conn)
	c.drop(idle)
	return idle
}

func (c *connections) drop(conn net.Conn) {
	if e, ok := c.at[conn]; ok {
		c.all.Remove(e)
		delete(c.at, conn)
	}
}

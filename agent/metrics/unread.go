package metrics

import (
	"net"
	"time"

	"github.com/gpuslot/gpuslot/agent/room"
)

const (
	// mostUnread is about how much of a reply the kernel keeps for a client that does not read it. This
	// memory counts as gpuslotd's, also after gpuslotd has closed the connection.
	mostUnread = 64 << 10
	// unreadPatience is how long a connection that ends keeps its place for what is not read yet.
	unreadPatience = 5 * time.Second
)

// listener has connections that leave nothing in the kernel's memory when they are closed.
type listener struct {
	net.Listener
	// over makes them close at once.
	over <-chan struct{}
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(mostUnread)
		return client{tcp, l.over, unreadPatience}, err
	}
	return c, err
}

// client is the connection of one.
type client struct {
	*net.TCPConn
	over     <-chan struct{}
	patience time.Duration
}

// Close waits until the other end has room for what was written, and drops what it has no room for then.
func (c client) Close() error {
	late := time.NewTimer(c.patience)
	defer late.Stop()
	for again := time.Millisecond; room.Unsent(c); again *= 2 {
		select {
		case <-time.After(again):
			continue
		case <-late.C:
		case <-c.over:
		}
		return c.drop()
	}
	return c.TCPConn.Close()
}

// drop closes at once, and has the kernel forget what was not sent.
func (c client) drop() error {
	_ = c.SetLinger(0)
	return c.TCPConn.Close()
}

// putOut closes a connection without its farewell: that of TLS may wait for the other end.
func putOut(conn net.Conn) {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	if c, ok := conn.(client); ok {
		_ = c.drop()
		return
	}
	_ = conn.Close()
}

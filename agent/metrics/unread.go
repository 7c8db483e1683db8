package metrics

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/room"
)

const (
	// mostUnread is about how much of a reply the kernel keeps for a client that does not read it, and of
	// what a client sends. This memory counts as gpuslotd's, also after gpuslotd has closed the connection.
	mostUnread = 64 << 10
	// unreadPatience is how long a connection that ends keeps its place for what is not read yet.
	unreadPatience = 5 * time.Second
	// mostEnding is how many connections may be put out and not have ended: their handlers still run.
	mostEnding = 64
)

// listener has connections that leave nothing in the kernel's memory when they are closed.
type listener struct {
	net.Listener
	// ctx makes them close at once when it ends.
	ctx context.Context
	// places are taken from a connection's begin until its last handler has ended.
	places chan struct{}
}

func listen(ctx context.Context, l net.Listener) listener {
	return listener{l, ctx, make(chan struct{}, maxConnections+mostEnding)}
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	_, _ = tcp.SetWriteBuffer(mostUnread), tcp.SetReadBuffer(mostUnread)
	gone, leave := context.WithCancel(l.ctx)
	return &client{tcp, unreadPatience, gone, leave, sync.OnceFunc(func() { <-l.places })}, nil
}

// client is the connection of one.
type client struct {
	*net.TCPConn
	patience time.Duration
	// gone ends when the connection is closed, by leave.
	gone  context.Context
	leave context.CancelFunc
	// ended gives its place to another.
	ended func()
}

// clientOf is the connection below one of TLS, or itself.
func clientOf(conn net.Conn) *client {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	return conn.(*client)
}

// untilGone is the context of a connection's requests. net/http ends it only for a client that sends nothing
// more, but a handler that waits shall end with its connection.
func untilGone(ctx context.Context, conn net.Conn) context.Context {
	ctx, end := context.WithCancel(ctx)
	context.AfterFunc(clientOf(conn).gone, end)
	return ctx
}

// Close waits until the other end has room for what was written, and drops what it has no room for then.
func (c *client) Close() error {
	defer c.leave()
	late := time.NewTimer(c.patience)
	defer late.Stop()
	for again := time.Millisecond; room.Unsent(c); again *= 2 {
		select {
		case <-time.After(again):
			continue
		case <-late.C:
		case <-c.gone.Done():
		}
		return c.drop()
	}
	return c.TCPConn.Close()
}

// drop closes at once, without TLS's farewell, which may wait for the other end. The kernel forgets what was
// not sent.
func (c *client) drop() error {
	c.leave()
	_ = c.SetLinger(0)
	return c.TCPConn.Close()
}

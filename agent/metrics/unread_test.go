package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/room"
)

const longReply = 4 << 20

// unreading connects with little room for a reply, asks for the page, and reads nothing.
func unreading(t *testing.T, address string) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return errors.Join(failed, err)
	}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestUnreadScrapes: where a client reads no reply, the kernel keeps none for it once its connection is put
// out. One that reads late has all of it.
func TestUnreadScrapes(t *testing.T) {
	asked := make(chan struct{}, 2)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		fmt.Fprint(w, strings.Repeat("x", longReply))
	})
	address, end := serving(t, Web{Page: page})
	defer end()
	late := unreading(t, address)
	<-asked
	if b, err := io.ReadAll(late); err != nil || len(b) < longReply {
		t.Errorf("read late: %d bytes, %v", len(b), err)
	}
	never := unreading(t, address)
	<-asked
	var last net.Conn
	for range maxConnections {
		var err error
		if last, err = net.Dial("tcp", address); err != nil {
			t.Fatal(err)
		}
		defer last.Close()
	}
	if _, err := io.WriteString(last, "GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(last); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(never); !errors.Is(err, syscall.ECONNRESET) || len(b) > 8*mostUnread {
		t.Errorf("one that was put out for the last reads %d bytes, %v", len(b), err)
	}
}

// TestCloseUnread: what the other end has no room for keeps a connection open for some time, and is
// forgotten then, or when gpuslotd ends.
func TestCloseUnread(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for what, c := range map[string]*client{"late": {patience: time.Millisecond, gone: t.Context()}, "over": {gone: gone, patience: time.Hour}} {
		other := unreading(t, l.Addr().String())
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.TCPConn, c.leave = conn.(*net.TCPConn), leave
		if _, err := c.Read(make([]byte, 1<<10)); err != nil { // the request
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 2*mostUnread)); err != nil {
			t.Fatal(err)
		}
		if !room.Unsent(c) {
			t.Fatal("all of it is sent")
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := io.ReadAll(other); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the other end reads: %v", what, err)
		}
	}
}

// TestHandlersOfOthers: a request that waits for its turn ends when its connection is put out, also where the
// client still owes its body: net/http does not look at such a connection. No more connections are taken
// than there are places, also while others have not ended.
func TestHandlersOfOthers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var waits atomic.Int64
	begun := make(chan struct{}, 2*maxConnections)
	page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		waits.Add(1)
		begun <- struct{}{}
		<-r.Context().Done()
		waits.Add(-1)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	srv := newServer(page, 4)
	go func() { done <- srv.Serve(listen(ctx, l)) }()
	const all = 12
	for range all {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-begun
	}
	for end := time.Now().Add(5 * time.Minute); waits.Load() > 4; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d requests wait", waits.Load(), all)
		}
	}
	cancel()
	_ = srv.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestPlaces: a connection has its place until its handler has ended, and the next one waits for it.
func TestPlaces(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := listen(ctx, inner)
	l.places = make(chan struct{}, 1)
	for range 2 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = first.(*client).drop()
	second := make(chan net.Conn)
	go func() {
		c, _ := l.Accept()
		second <- c
	}()
	select {
	case <-second:
		t.Error("taken while the first has not ended")
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 { // which counts once
		newConnections(1).state(first, http.StateClosed)
	}
	c := <-second
	defer c.Close()
	cancel()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}

// TestSent: the kernel keeps little of what a client sends, while it is not read. The connection begins with another
// size than Linux's default, which is the same as ours.
func TestSent(t *testing.T) {
	other := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, mostUnread+mostUnread/2)
		})
		return errors.Join(failed, err)
	}}
	inner, err := other.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	sender, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	c, err := listen(t.Context(), inner).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*client).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var room int
	failed := raw.Control(func(fd uintptr) { room, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF) })
	if errors.Join(failed, err) != nil || room != 2*mostUnread {
		t.Errorf("room for %d bytes, %v", room, errors.Join(failed, err))
	}
}

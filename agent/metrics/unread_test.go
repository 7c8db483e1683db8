package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 2)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		fmt.Fprint(w, strings.Repeat("x", longReply))
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- newTest(full()).Serve(ctx, l, Web{Page: page, Ready: func() bool { return true }}, slog.New(slog.DiscardHandler))
	}()
	late := unreading(t, l.Addr().String())
	<-asked
	if b, err := io.ReadAll(late); err != nil || len(b) < longReply {
		t.Errorf("read late: %d bytes, %v", len(b), err)
	}
	never := unreading(t, l.Addr().String())
	<-asked
	var last net.Conn
	for range maxConnections {
		if last, err = net.Dial("tcp", l.Addr().String()); err != nil {
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
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
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
	over := make(chan struct{})
	close(over)
	for what, c := range map[string]client{"late": {patience: time.Millisecond}, "over": {over: over, patience: time.Hour}} {
		other := unreading(t, l.Addr().String())
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.TCPConn = conn.(*net.TCPConn)
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

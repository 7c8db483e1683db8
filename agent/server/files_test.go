package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/test/linger"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// sendLast sends the last reference to a connection that lingers.
func (n *node) sendLast(c net.Conn, text string, flags int) {
	n.t.Helper()
	fd := linger.Connection(n.t)
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		n.t.Fatal(err)
	}
	failed := raw.Write(func(to uintptr) bool {
		err = unix.Sendmsg(int(to), []byte(text), unix.UnixRights(fd), nil, flags)
		return !errors.Is(err, unix.EAGAIN)
	})
	if failed != nil || err != nil {
		n.t.Fatal(failed, err)
	}
	_ = unix.Close(fd) // the message has the other reference
}

// passFiles has the kernel pass open files, as before Linux 6.16.
func (n *node) passFiles() {
	n.t.Helper()
	if _, err := n.raw(askNode); err != nil { // it serves by then, and has refused them
		n.t.Fatal(err)
	}
	raw, err := n.listener.SyscallConn()
	if err != nil {
		n.t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, soPassRights, 1) })
}

// converses are the goroutines of the server, but for the one that accepts.
func converses() (all []string) {
	buf := make([]byte, 1<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "agent/server.") && !strings.Contains(g, ").Serve(") && !strings.Contains(g, "server.Test") {
			all = append(all, g)
		}
	}
	return all
}

// awaitGoroutines waits until those of the server are as is wanted.
func awaitGoroutines(t *testing.T, wanted func(all string) bool) {
	t.Helper()
	var all string
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if all = strings.Join(converses(), "\n\n"); wanted(all) {
			return
		}
	}
	t.Errorf("goroutines of the server:\n%s", all)
}

// rests waits until the server has ended all connections, and waits in the kernel for none.
func (n *node) rests() {
	n.t.Helper()
	awaitGoroutines(n.t, func(all string) bool { return all == "" })
}

// ends waits until the server has ended a connection.
func (n *node) ends(c net.Conn) {
	n.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if b, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
		n.t.Errorf("after %q: %v", b, err)
	}
}

// TestFilesOfARequest: a request with an open file ends its conversation. gpuslotd does not wait for the file's
// end, where the kernel passes such files.
func TestFilesOfARequest(t *testing.T) {
	for name, send := range map[string]func(n *node, c net.Conn){
		"in the first message": func(n *node, c net.Conn) { n.sendLast(c, askNode, 0) },
		"in the second message": func(n *node, c net.Conn) {
			_, _ = io.WriteString(c, `{"v":1,`)
			n.sendLast(c, `"op":"node","verb":"status"}`+"\n", 0)
		},
		"out of band": func(n *node, c net.Conn) {
			n.sendLast(c, "{", unix.MSG_OOB)
			_, _ = io.WriteString(c, askNode[1:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			var accepts sync.Mutex
			n := newNode(t, func(s *Server) {
				s.peer = func(c *net.UnixConn) (starter.Peer, error) {
					accepts.Lock()
					defer accepts.Unlock()
					return starter.PeerOf(c)
				}
			})
			n.passFiles()
			accepts.Lock() // nothing is read before the message has the last reference
			var callers []net.Conn
			for range 3 {
				callers = append(callers, n.dialAs(1000))
				send(n, callers[len(callers)-1])
			}
			accepts.Unlock()
			for _, c := range callers {
				n.ends(c)
			}
			n.rests()
			if _, err := n.raw(askNode); err != nil {
				t.Errorf("another caller: %v", err)
			}
		})
	}
}

// TestFilesUnread: nor does it where the file comes behind the request, in a message that is not read.
func TestFilesUnread(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	n := newNode(t, func(s *Server) {
		s.Handlers[api.OpHere] = Handler{From: Anybody, Answer: func(context.Context, Question) api.Reply {
			asked <- struct{}{}
			<-answer
			return api.Reply{Done: "here"}
		}}
	})
	n.passFiles()
	var callers []net.Conn
	for range 3 {
		c := n.dialAs(1000)
		callers = append(callers, c)
		_, _ = io.WriteString(c, `{"v":1,"op":"here"}`+"\n")
		<-asked
		n.sendLast(c, "{", 0)
	}
	close(answer)
	for _, c := range callers {
		n.ends(c)
	}
	n.rests()
	if _, err := n.raw(askNode); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// accepted is a connection that sent a text, and its caller.
func accepted(t *testing.T, l *net.UnixListener, text string) (c *net.UnixConn, caller net.Conn) {
	t.Helper()
	caller, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	if _, err = io.WriteString(caller, text); err == nil {
		c, err = l.AcceptUnix()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, caller
}

// isClosed says whether the connection of a caller was closed with something unread, or only ended.
func isClosed(t *testing.T, caller net.Conn) bool {
	t.Helper()
	_, err := caller.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Fatal(err)
	}
	return errors.Is(err, unix.ECONNRESET)
}

// descriptors is how many this process has.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestEndings: a connection with anything unread waits until there is a thread for its end. One without does not.
// However many wait, they take few descriptors.
func TestEndings(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := endings{threads: mostEndings}
	c, _ := accepted(t, l, "")
	if e.end(c); !errors.Is(c.SetDeadline(time.Now()), net.ErrClosed) {
		t.Error("one without anything unread is not closed")
	}
	before := descriptors(t)
	const many = 1000
	var callers []net.Conn
	for range many {
		c, caller := accepted(t, l, "{")
		callers = append(callers, caller)
		if e.end(c); !errors.Is(c.SetDeadline(time.Now()), net.ErrClosed) {
			t.Fatal("its descriptor stays")
		}
		if _, err := caller.Write([]byte("{")); !errors.Is(err, unix.EPIPE) {
			t.Fatalf("it sends more: %v", err)
		}
		if isClosed(t, caller) {
			t.Fatal("it is closed without a thread")
		}
	}
	if e.kept != many || e.full() {
		t.Errorf("%d connections wait", e.kept)
	}
	if more := descriptors(t) - before - many; more > many/50 {
		t.Errorf("%d connections take %d descriptors", many, more)
	}
	e.close(e.next()) // a thread is free
	for _, caller := range callers {
		if !isClosed(t, caller) {
			t.Fatal("it is not closed")
		}
	}
	if e.threads != mostEndings-1 || len(e.waiting) > 0 || e.kept != 0 || descriptors(t) != before+many {
		t.Errorf("%d threads, %d wait, %d descriptors more", e.threads, len(e.waiting), descriptors(t)-before-many)
	}
}

// TestEndingsWithoutDescriptors: a connection for which there is no bag waits by itself.
func TestEndingsWithoutDescriptors(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := endings{threads: mostEndings}
	c, caller := accepted(t, l, "{")
	proctree.WithoutDescriptors(t, func() { e.end(c) })
	if c.SetDeadline(time.Now()) != nil || isClosed(t, caller) {
		t.Error("it is closed")
	}
	if e.close(e.next()); !isClosed(t, caller) {
		t.Error("it is not closed")
	}
}

// TestEndingsThatFill: while too many connections wait for their end none is accepted. Those that came are answered later.
func TestEndingsThatFill(t *testing.T) {
	n := newNode(t, func(s *Server) { s.endings.kept = mostKept })
	c := n.dialAs(1000)
	if _, err := io.WriteString(c, askNode); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer: %v", err)
	}
	n.endings.mu.Lock()
	n.endings.kept--
	n.endings.mu.Unlock()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if b, err := io.ReadAll(c); err != nil || len(b) == 0 {
		t.Errorf("then: %q, %v", b, err)
	}
}

// TestBagThatTakesNothing: where the kernel puts no connection into a bag, it waits by itself, and the bag leaves nothing.
func TestBagThatTakesNothing(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := endings{threads: mostEndings}
	c, caller := accepted(t, l, "{")
	_ = c.Close() // it cannot be sent
	before := descriptors(t)
	e.mu.Lock()
	e.keep(c)
	e.mu.Unlock()
	if after := descriptors(t); after != before || len(e.waiting) != 1 || e.last != nil {
		t.Errorf("%d descriptors, %d before, %d wait", after, before, len(e.waiting))
	}
	if e.close(e.next()); !isClosed(t, caller) || e.kept != 0 {
		t.Errorf("%d wait", e.kept)
	}
}

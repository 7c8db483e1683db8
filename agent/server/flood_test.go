package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// dialAs connects as an account, which peerByName reads from the caller's own address.
func (n *node) dialAs(uid uint32) net.Conn {
	n.t.Helper()
	own := &net.UnixAddr{Name: fmt.Sprintf("@%d:%d", uid, time.Now().UnixNano()), Net: "unix"}
	c, err := net.DialUnix("unix", own, &net.UnixAddr{Name: n.socket, Net: "unix"})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// aliceOwners are those of a node where a user has a range of accounts.
func aliceOwners(t *testing.T) *room.Owners {
	t.Helper()
	file := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(file, []byte("alice:100000:65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return room.NewOwners(file)
}

func peerByName(c *net.UnixConn) (starter.Peer, error) {
	p, err := starter.PeerOf(c)
	_, _ = fmt.Sscanf(c.RemoteAddr().String(), "@%d:", &p.UID) // other callers have no such address
	return p, err
}

// TestFloodOfManyAccounts: a user who connects as thousands of accounts, as one with a range in
// /etc/subuid can, is bounded in connections and in what is kept of requests. A caller of the
// node's own accounts that is slow keeps its place, and a hook is answered during the flood.
func TestFloodOfManyAccounts(t *testing.T) {
	const all = 50
	n := newNode(t, func(s *Server) {
		s.silent, s.readTimeout = newSilent(all, all, func(uint32) bool { return false }), time.Hour
		s.long, s.peer = newUnderWay(5, 5, func(uint32) bool { return false }), peerByName
	})
	n.in("slot1_1")
	slow := n.dialAs(1000)
	if _, err := io.WriteString(slow, `{"v":1,`); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 40<<10)
	for i := range 4 * all {
		c, text := n.dialAs(uint32(100000+i)), "{"
		if i%5 == 0 {
			text = long
		}
		_, _ = io.WriteString(c, text) // some are put out or refused before their end
		if i%all != 0 {
			continue
		}
		if reply, err := n.call(api.OpPrepare); err != nil || reply.Grant == nil {
			t.Fatalf("a hook after %d connections: %+v, %v", i, reply, err)
		}
	}
	n.silent.mu.Lock()
	if n.silent.sum > all {
		t.Errorf("%d connections wait", n.silent.sum)
	}
	n.silent.mu.Unlock()
	if _, err := io.WriteString(slow, `"op":"node","verb":"status"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(slow).ReadString('\n'); err != nil || !strings.Contains(line, `"done":"false 1000"`) {
		t.Errorf("who was slow reads %q, %v", line, err)
	}
}

// TestFewerOfTheOwnerThatHasMost: above the limit of all, the owner that has most loses its longest
// silent connection.
func TestFewerOfTheOwnerThatHasMost(t *testing.T) {
	c, owners := newSilent(2, 5, func(uint32) bool { return false }), aliceOwners(t)
	var ends [7]net.Conn
	for i, uid := range []uint32{1000, 100000, 100001, 100002, 100003, 1001, 100004} {
		conn, end := net.Pipe()
		defer conn.Close()
		defer end.Close()
		defer c.enter(uid, owners.Of(uid), func() { _ = conn.Close() })()
		ends[i] = end
	}
	for i, want := range []bool{false, true, true, false, false, false, false} {
		_ = ends[i].SetReadDeadline(time.Now())
		if _, err := ends[i].Read(make([]byte, 1)); errors.Is(err, io.EOF) != want {
			t.Errorf("connection %d: %v, closed is to be %t", i, err, want)
		}
	}
	if c.sum != 5 {
		t.Errorf("%d are counted", c.sum)
	}
}

// TestLongRequests: how many long requests are kept is bounded for each account and for all. A short one is read all
// the same, and so is root's, and the place is free when a request has ended.
func TestLongRequests(t *testing.T) {
	s := New(Options{Own: 900, Owners: aliceOwners(t)})
	s.long = newUnderWay(1, 2, s.isOperator)
	read := func(uid uint32, bytes int, want bool) *longReader {
		t.Helper()
		r := s.longReader(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", bytes))), uid)
		got, err := io.ReadAll(r)
		if want != (len(got) == bytes && err == nil) || want == errors.Is(err, errLong) {
			t.Errorf("%d bytes of %d: %d are read, %v", bytes, uid, len(got), err)
		}
		return r
	}
	first := read(100000, shortRequest+9, true)
	read(100001, shortRequest+1, false).done() // another account of the same owner
	second := read(1001, shortRequest+1, true)
	read(1002, shortRequest+1, false).done()
	for _, uid := range []uint32{100000, 1002} {
		read(uid, shortRequest, true).done()
	}
	for range 3 {
		read(0, 2*shortRequest, true)
		read(900, 2*shortRequest, true)
	}
	first.done()
	first.done() // counts once
	read(100001, shortRequest+1, true).done()
	second.done()
	if s.long.sum != 0 || len(s.long.of) != 0 {
		t.Errorf("%d are still counted, of %v", s.long.sum, s.long.of)
	}
}

// TestLongRequestIsRefused: the caller reads why.
func TestLongRequestIsRefused(t *testing.T) {
	var refused atomic.Int32
	n := newNode(t, func(s *Server) {
		s.long, s.peer = newUnderWay(0, 0, func(uint32) bool { return false }), peerByName
		s.Notes.Refused = func() { refused.Add(1) }
	})
	c := n.dialAs(100000)
	if _, err := io.WriteString(c, strings.Repeat("x", shortRequest+2)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, `"`+errLong.Error()+`"`) {
		t.Errorf("it reads %q, %v", line, err)
	}
	if refused.Load() != 1 {
		t.Error("it is not counted")
	}
	n.in("slot1_1")
	if reply, err := n.call(api.OpPrepare); err != nil || reply.Grant == nil {
		t.Errorf("a hook: %+v, %v", reply, err)
	}
}

// TestLongRequestsUnderWay: a long request keeps its place until its reply is made, and not until that is read.
func TestLongRequestsUnderWay(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	n := newNode(t, func(s *Server) {
		s.long, s.peer = newUnderWay(1, 1, func(uint32) bool { return false }), peerByName
		s.Handlers[api.OpNode] = Handler{From: Anybody, Answer: func(context.Context, Question) api.Reply {
			for _, step := range []chan struct{}{asked, answer} {
				select {
				case step <- struct{}{}:
				case <-t.Context().Done():
				}
			}
			return api.Reply{Done: "answered"}
		}}
	})
	ask := func(uid uint32) net.Conn {
		c := n.dialAs(uid)
		if _, err := io.WriteString(c, strings.Repeat(" ", shortRequest)+askNode); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := ask(1000)
	<-asked
	if got := whole(t, ask(1001)); !strings.Contains(got, "ask again") {
		t.Errorf("beside a long request: %q", got)
	}
	<-answer
	n.waiting(first)
	second := ask(1001)
	select {
	case <-asked:
		<-answer
	case <-time.After(time.Minute):
	}
	if got := whole(t, second); !strings.Contains(got, "answered") {
		t.Errorf("beside a reply that is not read: %q", got)
	}
}

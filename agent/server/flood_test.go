package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
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
	const all, most = 50, 256 << 10
	n := newNode(t, func(s *Server) {
		s.silent, s.readTimeout = newSilent(all, all, func(uint32) bool { return false }), time.Hour
		s.long, s.peer = &long{most: most}, peerByName
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

// TestLongRequests: what is kept of long requests is bounded over all, a short one is read all
// the same, and the place is free when a request has ended.
func TestLongRequests(t *testing.T) {
	l := &long{most: 10 << 10}
	read := func(bytes int) (*longReader, error) {
		r := l.reader(strings.NewReader(strings.Repeat("x", bytes)))
		_, err := io.ReadAll(r)
		return r, err
	}
	first, err := read(shortRequest + 8<<10)
	if err != nil {
		t.Fatal(err)
	}
	second, err := read(shortRequest + 8<<10)
	if err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("a second long request: %v", err)
	}
	if _, err = read(shortRequest); err != nil {
		t.Errorf("a short request: %v", err)
	}
	second.done()
	first.done()
	if kept := l.kept.Load(); kept != 0 {
		t.Errorf("%d bytes are still counted", kept)
	}
}

// TestLongRequestIsRefused: the caller reads why.
func TestLongRequestIsRefused(t *testing.T) {
	var refused atomic.Int32
	n := newNode(t, func(s *Server) {
		s.long, s.peer, s.Notes.Refused = &long{most: 1}, peerByName, func() { refused.Add(1) }
	})
	c := n.dialAs(100000)
	if _, err := io.WriteString(c, strings.Repeat("x", shortRequest+2)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "ask again") {
		t.Errorf("it reads %q, %v", line, err)
	}
	if refused.Load() != 1 {
		t.Error("it is not counted")
	}
	for end := time.Now().Add(time.Minute); n.long.kept.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are still counted", n.long.kept.Load())
		}
	}
	n.in("slot1_1")
	if reply, err := n.call(api.OpPrepare); err != nil || reply.Grant == nil {
		t.Errorf("a hook: %+v, %v", reply, err)
	}
}

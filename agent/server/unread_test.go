package server

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
)

const askNode = `{"v":1,"op":"node","verb":"status"}` + "\n"

// asks sends a request as an account, and leaves the reply unread.
func (n *node) asks(uid uint32) net.Conn {
	n.t.Helper()
	c := n.dialAs(uid)
	if _, err := io.WriteString(c, askNode); err != nil {
		n.t.Fatal(err)
	}
	return c
}

// waiting is how much of a reply a caller has not read, once there is any and it grows no more.
func (n *node) waiting(c net.Conn) (bytes int) {
	n.t.Helper()
	raw, err := c.(*net.UnixConn).SyscallConn()
	for before := -1; err == nil && (bytes == 0 || bytes != before); time.Sleep(100 * time.Millisecond) {
		before = bytes
		if failed := raw.Control(func(fd uintptr) { bytes, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); failed != nil {
			err = failed
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return bytes
}

// whole reads a reply to its end.
func whole(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	b, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	_ = c.Close()
	return string(b)
}

// TestUnreadReplies: a reply that its caller does not read keeps the place of its request, also when
// gpuslotd could have closed the connection. So do replies that say that there is no place. A request
// beyond these gets no reply. The place is free once the caller has read its reply, or closes.
func TestUnreadReplies(t *testing.T) {
	const most = 3
	n := newNode(t, func(s *Server) {
		s.peer = peerByName
		s.underWay = newUnderWay(most, 100, func(uint32) bool { return false })
		s.refusing = newUnderWay(1, 100, func(uint32) bool { return false })
	})
	var unread []net.Conn
	for range most {
		unread = append(unread, n.asks(1000))
		n.waiting(unread[len(unread)-1])
	}
	refused := n.asks(1000)
	n.waiting(refused)
	if got := whole(t, n.asks(1000)); got != "" {
		t.Errorf("one too many of those without a place is answered %q", got)
	}
	if got := whole(t, n.asks(1001)); !strings.Contains(got, `"done":"false 1001"`) {
		t.Errorf("another account is answered %q", got)
	}
	if got := whole(t, refused); !strings.Contains(got, "ask again") {
		t.Errorf("without a place: %q", got)
	}
	if got := whole(t, unread[0]); !strings.Contains(got, `"done":"false 1000"`) {
		t.Errorf("read late: %q", got)
	}
	_ = unread[1].Close()
	for _, free := range []string{"the one that was read", "the one that closed"} {
		var got string
		for got == "" || strings.Contains(got, "ask again") {
			got = whole(t, n.asks(1000))
		}
		if !strings.Contains(got, `"done":"false 1000"`) {
			t.Errorf("in the place of %s: %q", free, got)
		}
		n.asks(1000) // and keeps it
	}
	if got := whole(t, unread[2]); !strings.Contains(got, `"done":"false 1000"`) {
		t.Errorf("read last: %q", got)
	}
}

// TestLongReplyUnread: of a long reply the kernel keeps little for a caller that does not read it.
func TestLongReplyUnread(t *testing.T) {
	n := newNode(t, func(s *Server) {
		s.peer = peerByName
		s.Handlers[api.OpNode] = Handler{From: Anybody, Answer: func(context.Context, Question) api.Reply {
			return api.Reply{Done: strings.Repeat("x", 1<<20)}
		}}
	})
	if got := n.waiting(n.asks(1000)); got > 4*mostUnread {
		t.Errorf("%d bytes wait", got)
	}
	if got := whole(t, n.asks(1001)); len(got) < 1<<20 {
		t.Errorf("%d bytes of a long reply", len(got))
	}
}

// TestLongReplies: what waits of long replies is bounded for each account and for all, short ones and those to
// operators do not count, and the room is free again when a reply is written.
func TestLongReplies(t *testing.T) {
	var refused atomic.Int32
	s := New(Options{Own: 900, Owners: aliceOwners(t), Notes: Notes{Refused: func() { refused.Add(1) }}})
	s.replies = newUnderWay(3<<10, 5<<10, s.isOperator)
	write := func(uid uint32, bytes int, want bool) (written func()) {
		t.Helper()
		line, written := s.lineOf(nil, starter.Peer{UID: uid}, api.OpHook, api.Reply{Done: strings.Repeat("<", shortReply+bytes)})
		if said := !strings.Contains(string(line), "ask again"); said != want || said == (len(line) < shortReply) {
			t.Errorf("%d bytes more for %d: said %t, with %d bytes", bytes, uid, said, len(line))
		}
		return written
	}
	first := write(1000, 2<<10, true)
	write(1000, 2<<10, false)()
	second := write(1001, 2<<10, true)
	write(1002, 2<<10, false)()
	for _, operator := range []uint32{0, 900} {
		write(operator, 1<<20, true)()
	}
	if line, _ := s.lineOf(nil, starter.Peer{UID: 1000}, api.OpHook, api.Reply{Done: "short"}); !strings.Contains(string(line), "short") {
		t.Errorf("a short reply: %s", line)
	}
	first()
	write(1000, 2<<10, true)()
	second()
	if s.replies.sum != 0 || len(s.replies.of) != 0 || refused.Load() != 2 {
		t.Errorf("%d bytes are counted, of %v; %d were refused", s.replies.sum, s.replies.of, refused.Load())
	}
}

// TestLongReplyIsRefused: the caller reads why, and the next one is answered.
func TestLongReplyIsRefused(t *testing.T) {
	n := newNode(t, func(s *Server) {
		s.peer, s.replies = peerByName, newUnderWay(shortReply, shortReply, func(uint32) bool { return false })
		s.Handlers[api.OpNode] = Handler{From: Anybody, Answer: func(_ context.Context, q Question) api.Reply {
			return api.Reply{Done: strings.Repeat("x", shortReply*int(q.UID-999))}
		}}
	})
	for range 2 {
		if got := whole(t, n.asks(1001)); !strings.Contains(got, "ask again") {
			t.Errorf("too long: %d bytes", len(got))
		}
		if got := whole(t, n.asks(1000)); len(got) < shortReply {
			t.Errorf("not too long: %q", got)
		}
	}
}

// TestLongRepliesUnread: callers that do not read their long replies keep the room of their account, and no more. The
// next one is refused; a hook of the account, root and another account are answered. A reply that is read frees
// its room, and so does one whose caller leaves.
func TestLongRepliesUnread(t *testing.T) {
	const most, long = 3, 4 * shortReply
	n := newNode(t, func(s *Server) {
		s.peer, s.writeTimeout = peerByName, time.Hour
		s.Callers, s.Hook = ofSlot("hook"), func(c starter.Caller) bool { return c.Starter.Slot == "hook" }
		s.replies = newUnderWay(most*(long-shortReply)+shortReply, 1<<30, s.isOperator)
		s.Handlers[api.OpNode] = Handler{From: Anybody, Answer: func(context.Context, Question) api.Reply {
			return api.Reply{Done: strings.Repeat("<", long)}
		}}
		s.Handlers[api.OpHook] = Handler{From: Jobs, Answer: func(context.Context, Question) api.Reply {
			return api.Reply{Hook: strings.Repeat("<", long)}
		}}
	})
	var unread []net.Conn
	for range most {
		unread = append(unread, n.asks(1000))
		n.waiting(unread[len(unread)-1])
	}
	n.replies.mu.Lock()
	if got := n.replies.sum; got < most*(long-shortReply) || got > most*(long-shortReply)+shortReply {
		t.Errorf("%d bytes are counted", got)
	}
	n.replies.mu.Unlock()
	if got := whole(t, n.asks(1000)); !strings.Contains(got, "ask again") || len(got) > shortReply {
		t.Errorf("one too many: %d bytes", len(got))
	}
	hook := n.dialAs(1000)
	if _, err := io.WriteString(hook, `{"v":1,"op":"hook","hook":{"ad":""}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	for who, c := range map[string]net.Conn{"a hook": hook, "root": n.asks(0), "another account": n.asks(1001)} {
		if got := whole(t, c); !strings.Contains(got, strings.Repeat("<", long)) {
			t.Errorf("%s: %d bytes", who, len(got))
		}
	}
	whole(t, unread[0])
	_ = unread[1].Close()
	for _, free := range []string{"the one that was read", "the one that closed"} {
		c, end := n.asks(1000), time.Now().Add(5*time.Minute)
		for ; n.waiting(c) < 1<<10; c = n.asks(1000) { // it says that there is no room
			if _ = c.Close(); time.Now().After(end) {
				t.Fatalf("there is no room in the place of %s", free)
			}
		}
	}
	if got := whole(t, n.asks(1000)); !strings.Contains(got, "ask again") {
		t.Errorf("one too many again: %d bytes", len(got))
	}
}

// ofSlot are callers of one slot.
type ofSlot string

func (ofSlot) PeerBelowStartd(starter.Peer) bool { return false }

func (s ofSlot) IdentifyPeer(*net.UnixConn, starter.Peer) (starter.Caller, error) {
	return starter.Caller{Starter: starter.Starter{Slot: string(s)}}, nil
}

package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// TestRequestsUnderWay: one account's requests are bounded, also after they were read. Its
// hook and the startd's programs are answered all the same, and the place is free when a
// request has ended.
func TestRequestsUnderWay(t *testing.T) {
	const most = 3
	begun, release := make(chan struct{}, most+1), make(chan struct{})
	n := newNode(t, func(s *Server) {
		s.underWay = newUnderWay(most, 100, func(uint32) bool { return false })
		s.Hook = func(c starter.Caller) bool { return c.Starter.Slot == "slot1_2" }
		s.Handlers[api.OpHere] = Handler{From: Anybody, Answer: func(context.Context, Question) api.Reply {
			begun <- struct{}{}
			<-release
			return api.Reply{Done: "here"}
		}}
	})
	n.in("slot1_1")
	ended := make(chan error, most)
	for range most {
		go func() {
			_, err := n.call(api.OpHere)
			ended <- err
		}()
		<-begun
	}
	for _, op := range []api.Op{api.OpHere, api.OpPrepare} {
		if _, err := n.call(op); err == nil || !strings.Contains(err.Error(), "ask again") {
			t.Errorf("one too many, %s: %v", op, err)
		}
	}
	n.in("slot1_2")
	if reply, err := n.call(api.OpPrepare); err != nil || reply.Grant == nil {
		t.Errorf("the hook: %+v, %v", reply, err)
	}
	n.below()
	if _, err := n.call(api.OpMonitor); err != nil {
		t.Errorf("the startd's monitor: %v", err)
	}
	close(release)
	for range most {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestUnderWay: each account has its own places, all of them a largest number, and root is
// not counted.
func TestUnderWay(t *testing.T) {
	u := newUnderWay(2, 3, func(uid uint32) bool { return uid == 0 })
	var ends []func()
	for i, c := range []struct {
		uid uint32
		ok  bool
	}{{1000, true}, {1000, true}, {1000, false}, {1001, true}, {1002, false}, {0, true}, {0, true}} {
		end, ok := u.begin(c.uid, c.uid)
		if ends = append(ends, end); ok != c.ok {
			t.Errorf("%d: %d begins: %t", i, c.uid, ok)
		}
	}
	for _, end := range ends {
		end()
	}
	if len(u.of) != 0 || u.sum != 0 {
		t.Errorf("%v, %d in all", u.of, u.sum)
	}
}

// slowCallers find out who asks when the test lets them, and panic if it says so.
type slowCallers struct {
	asked chan struct{}
	is    chan starter.Caller
	// over ends those that wait for the test.
	over <-chan struct{}
}

func (slowCallers) PeerBelowStartd(starter.Peer) bool { return false }

func (c slowCallers) IdentifyPeer(*net.UnixConn, starter.Peer) (starter.Caller, error) {
	var is starter.Caller
	select {
	case c.asked <- struct{}{}:
	case <-c.over:
	}
	select {
	case is = <-c.is:
	case <-c.over:
	}
	switch is.Starter.Slot {
	case "":
		return is, errors.New("of no slot")
	case "defect":
		panic("a defect")
	default:
		return is, nil
	}
}

// TestIdentificationsBeyond: where an account has too many requests under way, few more of its
// connections wait until it is known whether a hook asks. The others are refused at once, other
// accounts have places of their own, and each place is free when its request has ended. A range of
// /etc/subuid is one account, and those that are refused are counted.
func TestIdentificationsBeyond(t *testing.T) {
	const most = 3
	var refused atomic.Int32
	over := make(chan struct{})
	defer close(over)
	slow := slowCallers{asked: make(chan struct{}), is: make(chan starter.Caller), over: over}
	n := newNode(t, func(s *Server) {
		s.underWay = newUnderWay(0, 0, func(uint32) bool { return false })
		s.beyond = newUnderWay(most, 2*(most+1), func(uint32) bool { return false })
		s.Callers, s.peer, s.Notes.Refused = slow, peerByName, func() { refused.Add(1) }
		s.Hook = func(c starter.Caller) bool { return c.Starter.Slot == "hook" }
	})
	ask := func(uid uint32) *bufio.Reader {
		c := n.dialAs(uid)
		if _, err := io.WriteString(c, `{"v":1,"op":"prepare","job":{}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		return bufio.NewReader(c)
	}
	reply := func(of string, r *bufio.Reader, want string) {
		t.Helper()
		if line, _ := r.ReadString('\n'); !strings.Contains(line, want) || (want == "") != (line == "") {
			t.Fatalf("%s reads %q, want %q", of, line, want)
		}
	}
	for _, c := range []struct {
		uids []uint32
		more uint32
	}{
		{[]uint32{100000, 100001, 100001, 1001, 1001, 1001, 1003, 1003}, 100002},
		{[]uint32{1200000000, 1200000000, 1200000000, 1200000001, 1001, 1001, 1001, 1003}, 1200000000}, // colleagues in a directory
	} {
		for _, kind := range []string{"", "defect", "job", "hook"} {
			var waiting []*bufio.Reader
			for _, uid := range c.uids {
				waiting = append(waiting, ask(uid))
				<-slow.asked
			}
			reply("one too many of an owner", ask(c.more), "ask again")
			reply("one too many in all", ask(1002), "ask again")
			for range waiting {
				slow.is <- starter.Caller{Starter: starter.Starter{Slot: kind}}
				if kind == "hook" { // it is answered, by who asks again
					<-slow.asked
					slow.is <- starter.Caller{Starter: starter.Starter{Slot: kind}}
				}
			}
			for _, r := range waiting {
				reply("kind "+kind, r, map[string]string{"": "ask again", "defect": "", "job": "ask again", "hook": `"grant"`}[kind])
			}
			n.free()
		}
	}
	if got := refused.Load(); got != 2*(4*2+2*8) { // of each owner two too many of each kind, and all that are no hooks
		t.Errorf("%d are counted as refused", got)
	}
}

// TestBeyondOfAnOperatorsName: an owner whose range begins at the agent's account has no more places.
func TestBeyondOfAnOperatorsName(t *testing.T) {
	own := aliceOwners(t).Of(100000)
	s := New(Options{Own: own, Owners: aliceOwners(t)})
	for range mostBeyond {
		if _, ok := s.beyond.begin(own, own); !ok {
			t.Fatal("there is no place")
		}
	}
	if _, ok := s.beyond.begin(own, own); ok {
		t.Error("there are too many")
	}
}

// TestBusyCallers: who cannot be identified because others are is refused, and does not count as one
// that is no job.
func TestBusyCallers(t *testing.T) {
	var refused, denied atomic.Int32
	n := newNode(t, func(s *Server) {
		s.Callers = busyCallers{}
		s.Notes.Denied = func(starter.Caller, error) { denied.Add(1) }
		s.Notes.Refused = func() { refused.Add(1) }
	})
	for i, op := range []api.Op{api.OpPrepare, api.OpHere} {
		if _, err := n.call(op); err == nil || !strings.Contains(err.Error(), "ask again") || refused.Load() != int32(i+1) {
			t.Errorf("%s: %v, %d are counted as refused", op, err, refused.Load())
		}
	}
	if got := denied.Load(); got != 0 {
		t.Errorf("%d count as no jobs", got)
	}
}

type busyCallers struct{}

func (busyCallers) PeerBelowStartd(starter.Peer) bool { return false }

func (busyCallers) IdentifyPeer(*net.UnixConn, starter.Peer) (starter.Caller, error) {
	return starter.Caller{}, fmt.Errorf("read the caller's cgroup: %w", room.ErrBusy)
}

// free waits until no place beyond the room is taken.
func (n *node) free() {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		n.beyond.mu.Lock()
		sum := n.beyond.sum
		n.beyond.mu.Unlock()
		if sum == 0 {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("%d are still counted", sum)
		}
	}
}

// TestUnderWayOfARange: the accounts of a range are one, wherever the range begins and ends, and leave room
// for others whose uids are near.
func TestUnderWayOfARange(t *testing.T) {
	u, n := newUnderWay(3, 10, func(uint32) bool { return false }), 0
	for uid := uint32(100000); uid < 165536; uid += 500 { // 131,072 is in it
		if _, ok := u.begin(uid, 100000); ok {
			n++
		}
	}
	_, near := u.begin(99000, 99000)
	if _, ok := u.begin(1001, 1001); n != 3 || !ok || !near {
		t.Errorf("%d of 10 are under way, another's: %t, one's that is near: %t", n, ok, near)
	}
}

// TestUnderWayOfABlock: accounts that lie together leave half of the requests to others.
func TestUnderWayOfABlock(t *testing.T) {
	u := newUnderWay(3, 10, func(uint32) bool { return false })
	var ends []func()
	for uid := uint32(700000); uid < 700100; uid++ {
		if end, ok := u.begin(uid, uid); ok {
			ends = append(ends, end)
		}
	}
	if len(ends) != 5 {
		t.Errorf("%d of 10 are under way", len(ends))
	}
	if end, ok := u.begin(1001, 1001); ok {
		ends = append(ends, end)
	} else {
		t.Error("another account is refused")
	}
	for _, end := range ends {
		end()
	}
	if u.sum != 0 || len(u.of) > 0 {
		t.Errorf("left: %d, %v", u.sum, u.of)
	}
}

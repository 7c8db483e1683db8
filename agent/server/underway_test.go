package server

import (
	"context"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
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
		end, ok := u.begin(c.uid)
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

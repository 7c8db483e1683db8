package daemons

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

func serverIn(status mps.ServerStatus, clients ...int) []mps.Server {
	return []mps.Server{{ID: process.ID{PID: 50}, Status: status, Clients: clients}}
}

func TestServerState(t *testing.T) {
	start := time.Unix(10000, 0)
	var s ServerState
	see := func(second int, servers []mps.Server) {
		s = s.next(servers, start.Add(time.Duration(second)*time.Second))
	}
	says := func(second int, want string) {
		t.Helper()
		got := s.Closed(start.Add(time.Duration(second) * time.Second))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("at %d s: %q, want %q", second, got, want)
		}
	}
	well := func(second int) {
		t.Helper()
		if at := start.Add(time.Duration(second) * time.Second); !s.ActiveAt().Equal(at) {
			t.Errorf("all were well at %s, want %s", s.ActiveAt(), at)
		}
	}
	see(0, nil)
	says(0, "")
	see(10, serverIn(mps.Initializing))
	says(11, "")
	says(41, "is not ready since")
	well(0)
	see(50, serverIn(mps.Active, 7))
	says(50, "")
	well(50)
	see(60, serverIn(mps.Faulted, 7, 8))
	says(60, "is in FAULT since")
	well(50)
	if left := s.leftovers(start.Add(70 * time.Second)); len(left) > 0 {
		t.Errorf("clients %v had no time to end", left)
	}
	see(75, serverIn(mps.Faulted, 8))
	if left := s.leftovers(start.Add(75 * time.Second)); !slices.Equal(left, []int{8}) {
		t.Errorf("leftovers = %v", left)
	}
	see(80, serverIn(mps.Active))
	says(80, "")
	if s.leftovers(start.Add(time.Hour)) != nil {
		t.Error("leftovers of a server that recovered")
	}
}

// TestServerFlaps: a GPU that faults again and again stays closed for longer
// each time, and is free again when that is past.
func TestServerFlaps(t *testing.T) {
	now := time.Unix(10000, 0)
	var s ServerState
	for i, want := range []time.Duration{0, 0, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute} {
		begin := now
		s = s.next(serverIn(mps.Faulted), begin)
		s = s.next(serverIn(mps.Active), begin.Add(time.Second))
		if want > 0 {
			if why := s.Closed(begin.Add(want - time.Second)); !strings.Contains(why, "fatal GPU errors within an hour") {
				t.Errorf("fault %d: %q before its pause is over", i+1, why)
			}
		}
		if why := s.Closed(begin.Add(max(want, time.Second))); why != "" {
			t.Errorf("fault %d: closed after its pause: %s", i+1, why)
		}
		now = begin.Add(max(want, time.Second))
	}
	now = now.Add(2 * serverFlapWindow)
	s = s.next(serverIn(mps.Faulted), now).next(serverIn(mps.Active), now.Add(time.Second))
	if why := s.Closed(now.Add(time.Second)); why != "" {
		t.Errorf("old faults count for ever: %s", why)
	}
}

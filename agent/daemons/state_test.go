package daemons

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

func TestState(t *testing.T) {
	fault := func(f mps.Fault) error { return &mps.Error{GPU: uuid(0), Fault: f, Text: string(f)} }
	w := mps.Wanted{GPU: uuid(0), Limit: 4096, ThreadPercentage: 100}
	good := mps.Checked{PID: 10, Started: 1, At: time.Unix(1000, 0), Servers: []int{70, 71}}
	s := State{}.next(w, good, nil)
	if s.Closed() != "" || s.Restarts != 0 {
		t.Errorf("first answer: %+v", s)
	}
	for _, f := range []mps.Fault{mps.NotRunning, mps.Suspended, mps.Gone, mps.WrongLimits, mps.Refused, mps.Foreign, mps.Wedged} {
		if bad := s.next(w, mps.Checked{}, fault(f)); bad.Closed() == "" {
			t.Errorf("%s does not close at once", f)
		}
	}
	for _, f := range []mps.Fault{mps.Busy} {
		once := s.next(w, mps.Checked{}, fault(f))
		if once.Closed() != "" || once.next(w, mps.Checked{}, fault(f)).Closed() == "" {
			t.Errorf("%s: one failure closes, or two do not", f)
		}
		if (State{}).next(w, mps.Checked{}, fault(f)).Closed() == "" {
			t.Errorf("%s: open without any proof", f)
		}
	}
	if bad := s.next(w, mps.Checked{}, errors.New("unknown")); bad.Closed() == "" {
		t.Error("an unknown error does not close")
	}
	other := good
	other.PID = 11
	if s = s.next(w, other, nil); s.Restarts != 1 {
		t.Errorf("restarts = %d", s.Restarts)
	}
}

func TestServersText(t *testing.T) {
	for want, s := range map[string]State{
		"no server yet (starts with the first job)": {},
		"ACTIVE (pid 70, uid 1000, 2 clients)": {Checked: mps.Checked{States: []mps.Server{
			{ID: process.ID{PID: 70}, UID: 1000, Status: mps.Active, Clients: []int{1, 2}}}}},
		"listed (pid 70, uid 0, 1 client; this control daemon reports no state); FAULT (pid 71, uid 7, 0 clients)": {Checked: mps.Checked{States: []mps.Server{
			{ID: process.ID{PID: 70}, ThreadPercentage: "100.0", Clients: []int{1}}, {ID: process.ID{PID: 71}, UID: 7, Status: mps.Faulted}}}},
		"ACTIVE (pid 70, uid 7, 0 clients); its clients get other limits than those now in force": {Checked: mps.Checked{Stale: []int{70}, States: []mps.Server{
			{ID: process.ID{PID: 70}, UID: 7, Status: mps.Active}}}},
	} {
		if got := s.ServersText(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestSelfTestNext: whatever comes, a self-test asks at most once for one thing, and is
// over after a bounded number of rounds.
func TestSelfTestNext(t *testing.T) {
	of := subject{daemon: process.ID{PID: 1, Started: 1}}
	proofs := []mps.Checked{
		{}, {States: []mps.Server{{Status: mps.Initializing}}}, {States: []mps.Server{{Status: mps.Active, UID: 5}}},
		{States: []mps.Server{{Status: mps.Faulted, Clients: []int{3}}}}, {States: []mps.Server{{}}},
	}
	for seed := range 5 * 5 * 5 * 5 * 2 {
		var tr SelfTest
		var asks []step
		for i := range 4 {
			p := proofs[seed/pow5(i)%5]
			p.At = time.Unix(int64(100+i), 0)
			var do step
			tr, do = tr.seen(p).next(of, false, p, seed%2 == 0)
			if do == ask {
				tr.asked = p.At
			}
			if do == ask || do == end {
				asks = append(asks, do)
				if seed%2 != 0 || len(p.States) > 0 && len(p.States[0].Clients) > 0 {
					t.Fatalf("seed %d: %s beside a job", seed, do)
				}
			}
			if do == read {
				tr = tr.after(nil)
			}
			if do == end {
				tr.over = true
			}
		}
		if !slices.IsSorted(asks) || len(slices.Compact(asks)) < len(asks) {
			t.Fatalf("seed %d: %v", seed, asks)
		}
		for range mostLooks + 1 {
			var do step
			if tr, do = tr.next(of, false, mps.Checked{}, true); do == ask {
				tr.asked = time.Unix(200, 0)
			} else if do == read {
				tr = tr.after(nil)
			}
		}
		if tr.pending() {
			t.Fatalf("seed %d: it goes on: %+v", seed, tr)
		}
	}
}

func pow5(n int) int {
	p := 1
	for range n {
		p *= 5
	}
	return p
}

func TestFlagFiles(t *testing.T) {
	paths := config.Paths{Run: t.TempDir()}
	several := plan.GPU{UUID: uuid(0), Mode: config.ModeMPS, Tenancy: plan.Tenancy{Policy: config.TenancyMultiUser}}
	if err := writeFlags(paths, plan.Plan{}); err != nil {
		t.Fatal(err)
	}
	if err := writeFlags(paths, plan.Plan{GPUs: []plan.GPU{several}}); err != nil {
		t.Fatal(err)
	}
	if got := Flags(paths, uuid(0)); !slices.Equal(got, []string{"-multiuser-server"}) {
		t.Errorf("%q", got)
	}
	several.Mode = config.ModeWhole
	if err := writeFlags(paths, plan.Plan{GPUs: []plan.GPU{several}}); err != nil || Flags(paths, uuid(0)) != nil {
		t.Errorf("%v, %q", err, Flags(paths, uuid(0)))
	}
}

// logStamp begins a line of a control daemon's log.
const logStamp = "[2026-11-21 10:33:22.201 Control  4005] "

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	gpuA = gpu.UUID("GPU-0000000a-0000-4000-8000-000000000000")
	gpuB = gpu.UUID("GPU-0000000b-0000-4000-8000-000000000000")
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func xidOf(u gpu.UUID, n int, when time.Time) gpu.Event {
	return gpu.Event{GPU: u, Kind: gpu.EventXID, XID: n, GPUInstance: gpu.NoInstance, ComputeInstance: gpu.NoInstance, Time: when}
}

func ptr[T any](v T) *T { return &v }

func sight(u gpu.UUID, change func(*Sight)) []Sight {
	s := Sight{Condition: gpu.Condition{GPU: u, Energy: ptr(uint64(5000)), UncorrectedVolatile: ptr(uint64(0)), RowFailed: ptr(false), RowsPending: ptr(false), Recovery: ptr(gpu.RecoveryNone)}}
	if change != nil {
		change(&s)
	}
	return []Sight{s}
}

// What closes a GPU, and what opens it: each row is a story.
func TestStories(t *testing.T) {
	lost := func(s *Sight) { s.Condition = gpu.Condition{GPU: s.GPU, Lost: true} }
	asks := func(r gpu.RecoveryAction) func(*Sight) { return func(s *Sight) { s.Recovery = &r } }
	for _, c := range []struct {
		name   string
		closes func(*Tracker)
		class  Closure
		says   []string
		then   func(*Tracker)
		open   bool
	}{
		{"Xid 79 is broken, back or not", func(x *Tracker) { x.Event(xidOf(gpuA, 79, at(0))); x.Round(at(1), sight(gpuA, lost)) },
			ClosedBroken, []string{"Xid 79 (GPU has fallen off the bus): drain the node and power-cycle it", "gpuslot gpu open --override " + string(gpuA)},
			func(x *Tracker) { x.Round(at(time.Hour), sight(gpuA, nil)) }, false},
		{"an operator opens it", func(x *Tracker) { x.Event(xidOf(gpuA, 79, at(0))) }, ClosedBroken, nil, func(x *Tracker) { x.Open(gpuA) }, true},
		{"Xid 119 stays without a sign of a reset", func(x *Tracker) { x.Event(xidOf(gpuA, 119, at(0))) }, ClosedForReset, []string{"Xid 119 (GSP RPC timeout): drain the node", "nvidia-smi --gpu-reset"},
			func(x *Tracker) { x.Round(at(240*time.Hour), sight(gpuA, nil)) }, false},
		{"lost and back", func(x *Tracker) { x.Event(xidOf(gpuA, 119, at(0))); x.Round(at(1), sight(gpuA, lost)) }, ClosedForReset, []string{"Xid 119"},
			func(x *Tracker) { x.Round(at(2), sight(gpuA, nil)) }, true},
		{"lost and back between two rounds", func(x *Tracker) { x.Event(gpu.Event{GPU: gpuA, Kind: gpu.EventLost, Time: at(1)}) }, ClosedForReset, []string{"GPU_IS_LOST"},
			func(x *Tracker) { x.Round(at(2), sight(gpuA, nil)) }, true},
		{"the driver was loaded again", func(x *Tracker) { x.Event(xidOf(gpuA, 48, at(0))) }, ClosedForReset, []string{"double bit"},
			func(x *Tracker) {
				x.Round(at(2), sight(gpuA, func(s *Sight) { s.Energy = ptr(uint64(4000)) }))
			}, true},
		{"its counters were cleared", func(x *Tracker) {
			x.Event(xidOf(gpuA, 48, at(0)))
			x.Round(at(1), sight(gpuA, func(s *Sight) { s.UncorrectedVolatile = ptr(uint64(2)) }))
		}, ClosedForReset, nil, func(x *Tracker) { x.Round(at(2), sight(gpuA, nil)) }, true},
		{"the driver's word", func(x *Tracker) { x.Round(at(1), sight(gpuA, asks(gpu.RecoveryNodeReboot))) }, ClosedForReset, []string{"the driver asks for: node reboot", "reboot it"},
			func(x *Tracker) { x.Round(at(2), sight(gpuA, nil)) }, true},
		{"the driver's word stays", func(x *Tracker) { x.Round(at(1), sight(gpuA, asks(gpu.RecoveryGPUReset))) }, ClosedForReset, nil,
			func(x *Tracker) { x.Round(at(2), sight(gpuA, asks(gpu.RecoveryGPUReset))) }, false},
		{"an operator knows better than the driver", func(x *Tracker) { x.Round(at(1), sight(gpuA, asks(gpu.RecoveryGPUReset))) }, ClosedForReset, nil,
			func(x *Tracker) { x.Open(gpuA); x.Round(at(2), sight(gpuA, asks(gpu.RecoveryGPUReset))) }, true},
		{"but not for ever", func(x *Tracker) { x.Round(at(1), sight(gpuA, asks(gpu.RecoveryGPUReset))) }, ClosedForReset, nil,
			func(x *Tracker) {
				x.Open(gpuA)
				x.Round(at(2), sight(gpuA, nil))
				x.Round(at(3), sight(gpuA, asks(gpu.RecoveryGPUReset)))
			}, false},
		{"a row that failed", func(x *Tracker) { x.Round(at(1), sight(gpuA, func(s *Sight) { s.RowFailed = ptr(true) })) }, ClosedBroken, []string{"row of its memory"},
			func(x *Tracker) { x.Round(at(2), sight(gpuA, lost)); x.Round(at(3), sight(gpuA, nil)) }, false},
		{"an operator opens it in spite of the row", func(x *Tracker) { x.Round(at(1), sight(gpuA, func(s *Sight) { s.RowFailed = ptr(true) })) }, ClosedBroken, nil,
			func(x *Tracker) {
				x.Open(gpuA)
				x.Round(at(2), sight(gpuA, func(s *Sight) { s.RowFailed = ptr(true) }))
			}, true},
		{"a new fault while it waits for its pause", func(x *Tracker) {
			for range 2 {
				x.Event(xidOf(gpuA, 119, at(0)))
				x.Round(at(0), sight(gpuA, lost))
				x.Round(at(0), sight(gpuA, nil))
			}
		}, ClosedForReset, []string{"it was reset and opens at 2026-03-01T12:10:00Z"}, func(x *Tracker) {
			x.Event(xidOf(gpuA, 62, at(time.Minute)))
			x.Round(at(24*time.Hour), sight(gpuA, nil))
		}, false},
		{"nothing is known in a round", func(x *Tracker) { x.Event(xidOf(gpuA, 95, at(0))) }, ClosedForReset, nil,
			func(x *Tracker) {
				x.Round(at(2), []Sight{{Condition: gpu.Condition{GPU: gpuA, Err: errors.New("no")}}})
			}, false},
		{"rows that wait close nothing", func(x *Tracker) {
			x.Event(xidOf(gpuA, 63, at(0)))
			x.Event(gpu.Event{GPU: gpuA, Kind: gpu.EventSingleBit})
			x.Round(at(1), sight(gpuA, func(s *Sight) { s.RowsPending = ptr(true) }))
		}, "", nil, func(*Tracker) {}, true},
		{"an NVLink error is left to the driver's word", func(x *Tracker) {
			x.Event(xidOf(gpuA, 74, at(0)))
			x.Round(at(1), sight(gpuA, nil))
		}, "", nil, func(*Tracker) {}, true},
		{"an NVLink error that needs a reset", func(x *Tracker) {
			x.Event(xidOf(gpuA, 74, at(0)))
			x.Round(at(1), sight(gpuA, asks(gpu.RecoveryGPUReset)))
		}, ClosedForReset, []string{"the driver asks for: GPU reset, after Xid 74 (NVLink error)"}, func(x *Tracker) { x.Round(at(2), sight(gpuA, nil)) }, true},
		{"an NVLink error where the driver has no word", func(x *Tracker) {
			x.Round(at(0), sight(gpuA, func(s *Sight) { s.Recovery = nil }))
			x.Event(xidOf(gpuA, 74, at(0)))
		}, ClosedForReset, []string{"Xid 74 (NVLink error)"}, func(*Tracker) {}, false},
		{"an NVLink error while the driver's word is accepted", func(x *Tracker) {
			x.Round(at(0), sight(gpuA, asks(gpu.RecoveryDrainP2P)))
			x.Open(gpuA)
			x.Event(xidOf(gpuA, 74, at(0)))
		}, ClosedForReset, []string{"Xid 74 (NVLink error)"}, func(*Tracker) {}, false},
		{"an unknown Xid", func(x *Tracker) {
			x.Event(xidOf(gpuA, 190, at(0)))
			x.Round(at(1), sight(gpuA, nil))
		}, "", nil, func(*Tracker) {}, true},
		{"an unknown Xid that the driver finds fatal", func(x *Tracker) {
			x.Event(xidOf(gpuA, 190, at(0)))
			x.Event(xidOf(gpuA, 154, at(0)))
			x.Round(at(1), sight(gpuA, asks(gpu.RecoveryNodeReboot)))
		}, ClosedForReset, []string{"the driver asks for: node reboot, after Xid 190: drain the node"}, func(*Tracker) {}, false},
		{"the driver's word long after an Xid", func(x *Tracker) {
			x.Event(xidOf(gpuA, 190, at(-time.Hour)))
			x.Round(at(1), sight(gpuA, asks(gpu.RecoveryNodeReboot)))
		}, ClosedForReset, []string{"the driver asks for: node reboot: drain"}, func(*Tracker) {}, false},
		{"an application on a GPU without a server", func(x *Tracker) { x.Event(xidOf(gpuA, 31, at(0))) }, "", nil, func(*Tracker) {}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &Tracker{}
			x.Round(at(-1), sight(gpuA, nil))
			c.closes(x)
			v := x.Verdict(gpuA, at(1))
			if v.Class != c.class || v.Closed() == (v.Reason == "") {
				t.Fatalf("%+v, want %q", v, c.class)
			}
			for _, part := range c.says {
				if !strings.Contains(v.Reason, part) {
					t.Errorf("%q does not say %q", v.Reason, part)
				}
			}
			c.then(x)
			if v := x.Verdict(gpuA, at(240*time.Hour)); v.Closed() == c.open {
				t.Errorf("in the end %+v", v)
			}
		})
	}
}

// The next agent sees the reset that was made while none ran.
func TestTroubleResetBetweenAgents(t *testing.T) {
	for name, c := range map[string]struct {
		saved  func(*Saved)
		energy uint64
		want   Closure
	}{
		"reset":               {nil, 100, ""},
		"not reset":           {nil, 6000, ClosedForReset},
		"of a newer gpuslotd": {func(s *Saved) { s.Class = "quarantined" }, 100, ClosedBroken},
	} {
		x := &Tracker{}
		x.Round(at(0), sight(gpuA, nil))
		x.Event(xidOf(gpuA, 119, at(1)))
		saved := x.Saved()
		if c.saved != nil {
			c.saved(&saved[0])
		}
		next := &Tracker{}
		next.Restore(saved)
		next.Round(at(time.Hour), sight(gpuA, func(s *Sight) { s.Energy = &c.energy }))
		if v := next.Verdict(gpuA, at(time.Hour)); v.Class != c.want {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestTroubleOfAServer(t *testing.T) {
	x := &Tracker{}
	x.Round(at(0), sight(gpuA, func(s *Sight) { s.Server = at(-1) }))
	fault := xidOf(gpuA, 31, at(2*time.Second))
	x.Named(gpuA, gpu.KernelXID{XID: 13, PID: 9, Process: "other"}, at(time.Second))
	x.Event(fault)
	x.Named(gpuA, gpu.KernelXID{XID: 31, PID: 77, Process: "python"}, at(3*time.Second))
	v := x.Verdict(gpuA, at(3*time.Second))
	if v.Class != ClosedForServer || !strings.Contains(v.Reason, "Xid 31 (GPU memory page fault), noted for process 77 (python): it opens when its MPS server is active again") {
		t.Errorf("%+v", v)
	}
	x.Round(at(4*time.Second), sight(gpuA, func(s *Sight) { s.Server = at(time.Second) })) // proven before the fault
	if v := x.Verdict(gpuA, at(4*time.Second)); !v.Closed() {
		t.Error("an old proof opens it")
	}
	x.Round(at(5*time.Second), sight(gpuA, func(s *Sight) { s.Server = at(5 * time.Second) }))
	if v := x.Verdict(gpuA, at(5*time.Second)); v.Closed() {
		t.Errorf("%+v", v)
	}
	// In a MIG instance it is not this server's.
	fault.GPUInstance = 2
	x.Event(fault)
	if v := x.Verdict(gpuA, at(5*time.Second)); v.Closed() {
		t.Errorf("%+v", v)
	}
	// The kernel log may be first.
	x.Named(gpuA, gpu.KernelXID{XID: 119, PID: 78, Process: "a"}, at(6*time.Second))
	x.Event(xidOf(gpuA, 119, at(7*time.Second)))
	if v := x.Verdict(gpuA, at(8*time.Second)); !strings.Contains(v.Reason, "for process 78 (a)") {
		t.Errorf("%+v", v)
	}
}

// A GPU that faults again and again is closed for longer each time.
func TestTroubleFlaps(t *testing.T) {
	x := &Tracker{}
	now := start
	x.Round(now, sight(gpuA, nil))
	var pauses []time.Duration
	for k := range 9 {
		x.Event(xidOf(gpuA, 119, now))
		x.Round(now, sight(gpuA, func(s *Sight) { s.Condition = gpu.Condition{GPU: gpuA, Lost: true} }))
		closed := now
		for x.Verdict(gpuA, now).Closed() {
			x.Round(now, sight(gpuA, nil))
			if v := x.Verdict(gpuA, now); v.Closed() && k > 0 && !strings.Contains(v.Reason, fmt.Sprintf("its fault number %d in 24 h: it was reset and opens at ", k+1)) {
				t.Fatalf("%+v", v)
			}
			now = now.Add(time.Minute)
			if now.Sub(closed) > 24*time.Hour {
				t.Fatalf("never opens: %+v", x.Verdict(gpuA, now))
			}
		}
		pauses = append(pauses, now.Sub(closed).Truncate(10*time.Minute))
	}
	want := []time.Duration{0, 10, 20, 40, 80, 160, 320, 480, 480}
	for i := range want {
		want[i] *= time.Minute
	}
	if d := cmp.Diff(want, pauses); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestTroubleFaultsAreCounted(t *testing.T) {
	x := &Tracker{}
	x.Round(at(0), sight(gpuA, nil))
	for range 2 {
		x.Event(xidOf(gpuA, 31, at(0)))
	}
	x.Event(xidOf(gpuB, 79, at(0)))
	x.Event(gpu.Event{GPU: gpuB, Kind: gpu.EventLost, Time: at(1)})
	for range 3 { // one loss
		x.Round(at(2), sight(gpuB, func(s *Sight) { s.Condition = gpu.Condition{GPU: gpuB, Lost: true} }))
	}
	want := []Counted{
		{gpuA, "xid-31", gpu.XIDApplication, 2},
		{gpuB, "lost", gpu.XIDNeedsReset, 1},
		{gpuB, "xid-79", gpu.XIDBroken, 1},
	}
	if d := cmp.Diff(want, x.Counts()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// step is one thing that happens to one GPU.
type step struct {
	gpu   gpu.UUID
	event *gpu.Event
	sight *Sight
	name  *gpu.KernelXID
	now   time.Time
}

func (s step) on(x *Tracker) {
	switch {
	case s.event != nil:
		x.Event(*s.event)
	case s.sight != nil:
		x.Round(s.now, []Sight{*s.sight})
	case s.name != nil:
		x.Named(s.gpu, *s.name, s.now)
	}
}

func steps(xids []int, hardware bool) *rapid.Generator[[]step] {
	return rapid.Custom(func(t *rapid.T) []step {
		now := start
		var all []step
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(t, "pause")) * time.Second)
			u := rapid.SampledFrom([]gpu.UUID{gpuA, gpuB}).Draw(t, "gpu")
			s := step{gpu: u, now: now}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0, 1:
				e := xidOf(u, rapid.SampledFrom(xids).Draw(t, "xid"), now)
				if hardware {
					e.Kind = rapid.SampledFrom([]gpu.EventKind{gpu.EventXID, gpu.EventXID, gpu.EventXID, gpu.EventLost, gpu.EventUnavailable, gpu.EventDoubleBit}).Draw(t, "event")
				}
				s.event = &e
			case 2:
				v := sight(u, nil)[0]
				if rapid.Bool().Draw(t, "server") {
					v.Server = now
				}
				if hardware {
					v.Energy = ptr(uint64(rapid.IntRange(0, 3).Draw(t, "energy")))
					v.UncorrectedVolatile = ptr(uint64(rapid.IntRange(0, 3).Draw(t, "volatile")))
					v.RowFailed = ptr(rapid.IntRange(0, 9).Draw(t, "row") == 0)
					v.Recovery = ptr(gpu.RecoveryAction(rapid.IntRange(0, 1).Draw(t, "recovery")))
					if rapid.IntRange(0, 4).Draw(t, "lost") == 0 {
						v.Condition = gpu.Condition{GPU: u, Lost: true}
					}
				}
				s.sight = &v
			case 3:
				s.name = &gpu.KernelXID{XID: rapid.SampledFrom(xids).Draw(t, "xid"), PID: 7, Process: "p"}
			}
			all = append(all, s)
		}
		return all
	})
}

var anyXID = append(xids(func(c gpu.XIDClass) bool { return c != gpu.XIDUnknown }), 0, 1, gpu.UnknownXID)

// xids are the numbers of such classes.
func xids(is func(gpu.XIDClass) bool) []int {
	var all []int
	for n := range gpu.UnknownXID {
		if is(gpu.XIDByNumber(n).Class) {
			all = append(all, n)
		}
	}
	return all
}

// A broken GPU never opens by itself, not even through a new agent.
func TestTroubleBrokenStaysClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &Tracker{}
		broken := map[gpu.UUID]bool{}
		for _, s := range steps(anyXID, true).Draw(t, "all") {
			s.on(x)
			if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
				x = restarted(t, x)
			}
			v := x.Verdict(s.gpu, s.now)
			if broken[s.gpu] && v.Class != ClosedBroken {
				t.Fatalf("%s was broken and is %+v", s.gpu, v)
			}
			if s.event != nil && s.event.Kind == gpu.EventXID && gpu.XIDByNumber(s.event.XID).Class == gpu.XIDBroken && v.Class != ClosedBroken {
				t.Fatalf("%+v leaves it %+v", s.event, v)
			}
			if v.Closed() != (v.Reason != "") {
				t.Fatalf("closed without a reason, or open with one: %+v", v)
			}
			broken[s.gpu] = v.Class == ClosedBroken
		}
	})
}

func restarted(t *rapid.T, x *Tracker) *Tracker {
	text, err := json.Marshal(x.Saved())
	if err != nil {
		t.Fatal(err)
	}
	var saved []Saved
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	next := &Tracker{}
	next.Restore(saved)
	again, err := json.Marshal(next.Saved())
	if err != nil || string(again) != string(text) {
		t.Fatalf("saved %s, then %s, %v", text, again, err)
	}
	return next
}

// Applications close a GPU until its server is proven active, and never longer
// than the limit.
func TestTroubleApplicationsCloseNoGPUForLong(t *testing.T) {
	applications := xids(func(c gpu.XIDClass) bool { return c == gpu.XIDApplication })
	rapid.Check(t, func(t *rapid.T) {
		x := &Tracker{}
		last := map[gpu.UUID]time.Time{}
		for _, s := range steps(applications, false).Draw(t, "all") {
			s.on(x)
			if s.event != nil {
				last[s.gpu] = s.now
			}
			v := x.Verdict(s.gpu, s.now)
			if v.Closed() && (v.Class != ClosedForServer || s.now.Sub(last[s.gpu]) >= serverRecovery) {
				t.Fatalf("%+v", v)
			}
			if s.sight != nil && s.sight.Server.After(last[s.gpu]) && v.Closed() {
				t.Fatalf("its server is active and it is %+v", v)
			}
			for _, u := range []gpu.UUID{gpuA, gpuB} {
				if v := x.Verdict(u, s.now.Add(serverRecovery)); v.Closed() {
					t.Fatalf("after the limit it is %+v", v)
				}
			}
			if saved := x.Saved(); len(saved) > 0 {
				t.Fatalf("%+v is kept", saved)
			}
		}
	})
}

// What happens to one GPU leaves the others as they would be without it.
func TestTroubleStaysOnItsGPU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		together, alone := &Tracker{}, &Tracker{}
		for _, s := range steps(anyXID, true).Draw(t, "all") {
			s.on(together)
			if s.gpu == gpuA {
				s.on(alone)
			}
			if d := cmp.Diff(alone.Verdict(gpuA, s.now), together.Verdict(gpuA, s.now)); d != "" {
				t.Fatalf("(-alone +together):\n%s", d)
			}
		}
	})
}

func TestTroubleIsBounded(t *testing.T) {
	x := &Tracker{}
	for i := range 1000 {
		x.Event(xidOf(gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i)), 79, at(0)))
		x.Event(xidOf(gpuA, i, at(time.Duration(i)*time.Hour)))
		x.Round(at(time.Duration(i)*time.Hour), sight(gpuA, func(s *Sight) { s.Energy = ptr(uint64(5000 - i)) }))
	}
	x.Event(xidOf("", 79, at(0)))
	faults := 0
	for _, f := range x.Counts() {
		if f.GPU == gpuA {
			faults += f.Count
		}
	}
	if len(x.gpus) != maxGPUs || len(x.gpus[gpuA].counts) > maxReasons+1 || len(x.gpus[gpuA].faults) > maxFaults || faults < 1000 {
		t.Errorf("%d GPUs, %d counters, %d faults, %d counted", len(x.gpus), len(x.gpus[gpuA].counts), len(x.gpus[gpuA].faults), faults)
	}
}

func TestFollowKernelXIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	hold, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan gpu.KernelXID), make(chan error)
	go func() { ended <- FollowKernelLog(ctx, path, func(x gpu.KernelXID) { told <- x }) }()
	long := "4,1,1,-;" + strings.Repeat("x", 3*maxRecord) + "\n"
	if _, err := hold.WriteString(long + "6,2,2,-;eth0: link up\n4,3,3,-;NVRM: Xid (PCI:0000:1a:00): 31, pid=77, name=python, Ch 8\n"); err != nil {
		t.Fatal(err)
	}
	if x := <-told; x.XID != 31 || x.PID != 77 || x.PCI != "0000:1a:00.0" {
		t.Errorf("%+v", x)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := FollowKernelLog(t.Context(), path+"?", nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

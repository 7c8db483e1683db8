package usage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// A server is not looked for among the slots again, and is none any more when its control daemon is gone.
func TestServersStay(t *testing.T) {
	n := newNode(t)
	n.process(t, 104, 1)
	n.servers[104] = true
	n.readings = []gpu.Reading{reads(gpuA, on(104, gib))}
	s := n.sampler()
	owner := func() Owner {
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value[0].Owner
	}
	if got := owner(); got != OwnerServer || n.asked != 1 {
		t.Fatalf("the server is of %q, and %d processes were looked for in slots", got, n.asked)
	}
	if got := owner(); got != OwnerServer || n.asked != 1 {
		t.Errorf("the server is of %q, and %d processes were looked for in slots", got, n.asked)
	}
	n.servers[104] = false
	if got := owner(); got != OwnerNone {
		t.Errorf("a server without its control daemon is of %q", got)
	}
}

// Processes that were read once are followed without /proc, to their end.
func TestProcessesAreFollowed(t *testing.T) {
	c := exec.Command("sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = c.Process.Kill(); _ = c.Wait() }
	defer end()
	pid := c.Process.Pid
	n := newNode(t)
	n.proc = "" // the real one
	n.slots[pid] = slot1
	n.readings = []gpu.Reading{reads(gpuA, on(pid, gib))}
	s := n.sampler()
	listed := func() Process {
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value[0]
	}
	was, err := process.FS{}.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := listed(); got.Owner != OwnerSlot || got.Slot != slot1 || got.Started != was.Started {
			t.Errorf("the process is %+v", got)
		}
		if id, ok := s.owners.running.Find(pid); !ok || id != was.ID {
			t.Errorf("it is followed as %v, %v", id, ok)
		}
	}
	end()
	if got := listed(); got.Owner != OwnerEnded || got.Started != 0 {
		t.Errorf("a process that has ended is %+v", got)
	}
	n.readings = []gpu.Reading{reads(gpuA)}
	n.round(t, s)
	if _, ok := s.owners.running.Find(pid); ok {
		t.Error("a process that is not listed any more is followed")
	}
}

// Who leaves the GPU and runs on is not followed any more.
func TestOnlyListedAreFollowed(t *testing.T) {
	c := exec.Command("sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	n := newNode(t)
	n.proc = ""
	n.readings = []gpu.Reading{reads(gpuA, on(c.Process.Pid, gib))}
	s := n.sampler()
	n.round(t, s)
	if _, ok := s.owners.running.Find(c.Process.Pid); !ok {
		t.Fatal("a process on the GPU is not followed")
	}
	n.readings = []gpu.Reading{reads(gpuA)}
	n.round(t, s)
	if _, ok := s.owners.running.Find(c.Process.Pid); ok {
		t.Error("a process that left the GPU is followed")
	}
}

// TestOwnersAreAskedForOnce: a process of a slot is asked for once, however many devices list it and
// however often it leaves them all and comes back. Another process with its PID is asked for.
func TestOwnersAreAskedForOnce(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 101, 1) // of no slot
	n.slots[100] = slot1
	both, none := []gpu.Reading{}, []gpu.Reading{}
	for _, u := range []gpu.UUID{gpuA, gpuB} {
		both, none = append(both, reads(u, on(100, gib), on(101, gib))), append(none, reads(u))
	}
	s := n.sampler()
	round := func(readings []gpu.Reading, want int) {
		t.Helper()
		n.readings, n.asked = readings, 0
		if n.round(t, s); n.asked != want {
			t.Errorf("%d processes were looked for in slots, want %d", n.asked, want)
		}
	}
	round(both, 2)
	for range 3 {
		round(none, 0)
		round(both, 1)
	}
	round(none, 0)
	n.process(t, 100, 2)
	round(both, 2)
}

// TestOwnersAreForgotten: processes that come and go are known in a bounded number, and those that are listed always.
func TestOwnersAreForgotten(t *testing.T) {
	n := newNode(t)
	s := n.sampler()
	for first := 100; first < 100+2*mostKnown; first += mostKnown {
		var list []gpu.DeviceProcess
		for pid := first; pid <= first+mostKnown; pid++ {
			n.process(t, pid, 1)
			n.slots[pid] = slot1
			list = append(list, on(pid, 1))
		}
		n.readings = []gpu.Reading{reads(gpuA, list...)}
		n.round(t, s)
		if got := len(s.owners.known); got != len(list) {
			t.Errorf("%d processes are known, want %d", got, len(list))
		}
	}
}

// cgroups puts pipes in the place of processes' cgroup files, which nobody writes: to read one does not end. What
// answer puts there later is the end of it.
func (n *node) cgroups(t *testing.T, pids ...int) (answer func()) {
	t.Helper()
	for _, pid := range pids {
		if err := unix.Mkfifo(n.cgroup(pid), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	answer = sync.OnceFunc(func() {
		for _, pid := range pids {
			if err := proctree.AnswerPipe(n.cgroup(pid), ""); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(answer)
	return answer
}

func (n *node) cgroup(pid int) string { return filepath.Join(n.proc, fmt.Sprint(pid), "cgroup") }

// TestOwnersThatAreNotKnownYet: reads of cgroups do not end on one GPU. Rounds end, and show the other GPU and its
// jobs. What is not known is in nobody's sum, and in nobody's way. It is asked once, and known as soon as it is
// answered.
func TestOwnersThatAreNotKnownYet(t *testing.T) {
	n := newNode(t)
	var stuck []gpu.DeviceProcess
	var pids []int
	for pid := 100; pid < 120; pid++ {
		n.process(t, pid, 1)
		stuck, pids = append(stuck, on(pid, gib)), append(pids, pid)
	}
	n.process(t, 200, 1)
	n.slots = map[int]SlotKey{100: slot1, 200: slot2}
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1, Cap: 1}, {Slot: slot2, Device: Device{GPU: gpuB}, Share: 1, Cap: 1}}
	n.readings = []gpu.Reading{reads(gpuA, stuck...), reads(gpuB, on(200, gib))}
	n.readings[0].SMActivity = gpu.Known(gpu.Activity{Ratio: 0.5})
	s := n.sampler()
	s.wait = time.Millisecond
	answer := n.cgroups(t, pids...)
	var snap *Snapshot
	rounds := 0
	seen := func() bool { u, _ := snap.Slot(slot2, Device{GPU: gpuB}); return u.Memory == gpu.Known(gib) }
	for late := time.Now().Add(5 * time.Minute); rounds < 3 || !seen(); rounds++ {
		if snap = n.round(t, s); time.Now().After(late) {
			t.Fatalf("the other GPU shows %+v", snap.Slots)
		}
	}
	d, _ := snap.Device(wholeA)
	for _, p := range d.Processes.Value {
		if p.Owner != OwnerUnknown || p.Slot != (SlotKey{}) {
			t.Fatalf("after %d rounds a process is %+v", rounds, p)
		}
	}
	u, _ := snap.Slot(slot1, wholeA)
	if u.Memory.Known || u.Processes != 0 || u.Job.Idle.Value != 0 || u.SM.Upper != gpu.Known(0.5) {
		t.Errorf("a job that may have them: %+v", u)
	}
	n.mu.Lock()
	if n.asked > 5 {
		t.Errorf("%d questions are under way", n.asked)
	}
	n.mu.Unlock()
	answer()
	s.wait = 5 * time.Minute
	snap = n.round(t, s)
	d, _ = snap.Device(wholeA)
	for _, p := range d.Processes.Value {
		if want := map[bool]Owner{true: OwnerSlot, false: OwnerNone}[p.PID == 100]; p.Owner != want {
			t.Errorf("answered: %+v", p)
		}
	}
	if u, _ := snap.Slot(slot1, wholeA); u.Memory != gpu.Known(gib) {
		t.Errorf("answered: %+v", u)
	}
}

// TestKnownOwnersStay: while the kernel does not say whether a process of no slot still is one, it is.
func TestKnownOwnersStay(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	s := n.sampler()
	n.round(t, s)
	n.cgroups(t, 100)
	s.wait = time.Millisecond
	if d, _ := n.round(t, s).Device(wholeA); d.Processes.Value[0].Owner != OwnerNone {
		t.Errorf("%+v", d.Processes.Value)
	}
}

// TestGraphicsThatMayBeAJobs: it is left out when it is known to be no job's.
func TestGraphicsThatMayBeAJobs(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.readings = []gpu.Reading{reads(gpuA, gpu.DeviceProcess{PID: 100, Graphics: true})}
	s := n.sampler()
	s.wait = time.Millisecond
	answer := n.cgroups(t, 100)
	if d, _ := n.round(t, s).Device(wholeA); len(d.Processes.Value) != 1 || d.Unowned != 1 {
		t.Errorf("%+v", d)
	}
	answer()
	s.wait = 5 * time.Minute
	if d, _ := n.round(t, s).Device(wholeA); len(d.Processes.Value) != 0 {
		t.Errorf("answered: %+v", d)
	}
}

// TestProcessThatOutlivesItsJob: a process of a slot is the slot's as long as the slot's starter runs. A service manager of
// its account may have taken it elsewhere, so then it is asked for again.
func TestProcessThatOutlivesItsJob(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	s := n.sampler()
	n.round(t, s)
	delete(n.slots, 100)
	owner := func() Owner {
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value[0].Owner
	}
	if got := owner(); got != OwnerSlot {
		t.Errorf("while the job runs it is of %q", got)
	}
	n.process(t, slot1.Starter, 7) // another process has the PID
	if got := owner(); got != OwnerNone {
		t.Errorf("after the job's end it is of %q", got)
	}
}

// TestListedAfterItsEnd: the driver lists a process after its end while another one keeps its files open. It counts for the job that
// it was seen in. Of one that was never seen it is not known whose it is, from the second reading on. A later process that
// gets the PID is not taken for it, until the device once did not list the PID.
func TestListedAfterItsEnd(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1}}
	s := n.sampler()
	look := func(pids ...int) []Process {
		var all []gpu.DeviceProcess
		for _, pid := range pids {
			all = append(all, on(pid, gib))
		}
		n.readings = []gpu.Reading{reads(gpuA, all...)}
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value
	}
	memory := func() gpu.Measured[gpu.Bytes] {
		u, _ := s.Snapshot().Slot(slot1, wholeA)
		return u.Memory
	}
	look(100)
	n.end(t, 100)
	for range 3 {
		if p := look(100)[0]; p.Owner != OwnerEnded || !p.OfSlot() || p.Unclear() || memory() != gpu.Known(gib) {
			t.Errorf("of a job that was seen: %+v, %v", p, memory())
		}
	}
	for i, unclear := range []bool{false, true, true} {
		if p := look(100, 200)[1]; p.Owner != OwnerEnded || p.OfSlot() || p.Unclear() != unclear || memory() != (gpu.Measured[gpu.Bytes]{Value: gib, Known: !unclear}) {
			t.Errorf("never seen, reading %d: %+v, %v", i, p, memory())
		}
	}
	later, err := process.TicksAt(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	n.process(t, 200, later)
	n.slots[200] = slot1
	if p := look(100, 200)[1]; p.Owner != OwnerEnded || !p.Unclear() {
		t.Errorf("its PID is another process's: %+v", p)
	}
	look(100)
	n.process(t, 200, 1)
	if p := look(100, 200)[1]; p.Owner != OwnerSlot {
		t.Errorf("a process of that PID: %+v", p)
	}
	n.process(t, slot1.Starter, 7)
	if p := look(100)[0]; p.OfSlot() || !p.Unclear() {
		t.Errorf("after the job's end: %+v", p)
	}
}

// TestPIDThatWasAnothers: a process ends before the first reading that lists it, and another one gets its PID. One that
// began before, or whose PID no process had, is what the PID says.
func TestPIDThatWasAnothers(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 200, 1)
	n.slots[100], n.slots[200], n.slots[300] = slot1, slot1, slot1
	s := n.sampler()
	look := func(all ...gpu.DeviceProcess) []Process {
		n.readings = []gpu.Reading{reads(gpuA, all...)}
		n.readings[0].At = time.Now()
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value
	}
	look()
	time.Sleep(2 * time.Second / process.TicksPerSecond) // a process began at a tick, and the next one at another
	look()
	now, err := process.TicksAt(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n.end(t, 100)
	n.process(t, 100, now+1)
	n.process(t, 300, now+1)
	time.Sleep(4 * time.Second / process.TicksPerSecond)
	for i := range 3 {
		got := look(on(100, gib), on(200, gib), on(300, gib))
		if p := got[0]; p.Owner != OwnerEnded || p.OfSlot() || p.Unclear() != (i > 0) {
			t.Errorf("reading %d: a PID of a process that ended: %+v", i, p)
		}
		for _, p := range got[1:] {
			if p.Owner != OwnerSlot {
				t.Errorf("reading %d: %+v", i, p)
			}
		}
	}
}

// TestOwnerOfWhatIsNotAnswered: a process that the kernel does not answer (process.ErrHeld) is asked for by its PID, in
// each round: the next one may have the same PID.
func TestOwnerOfWhatIsNotAnswered(t *testing.T) {
	n := newNode(t)
	n.process(t, 300, 1)
	n.slots[300] = slot1
	file := filepath.Join(n.proc, "300/stat")
	text, err := os.ReadFile(file)
	if err = errors.Join(err, os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	answer := func() {
		if err := proctree.AnswerPipe(file, string(text)); err != nil {
			t.Error(err)
		}
	}
	defer answer()
	n.readings = []gpu.Reading{reads(gpuA, on(300, gib))}
	s := n.sampler()
	s.Pace(time.Second, time.Minute)
	for _, slot := range []SlotKey{slot1, slot2, {}} {
		owner := OwnerSlot
		if n.slots[300] = slot; slot == (SlotKey{}) {
			delete(n.slots, 300)
			owner = OwnerUnknown // it may be a job's that changed its account
		}
		d, _ := n.round(t, s).Device(wholeA)
		if p := d.Processes.Value[0]; p.Owner != owner || p.Slot != slot || p.Started != 0 {
			t.Errorf("%+v, want it to be of %v", p, slot)
		}
	}
}

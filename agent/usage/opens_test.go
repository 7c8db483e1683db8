package usage

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// opening is a node whose processes have nodes of GPUs open.
type opening struct {
	*node
	mu sync.Mutex
	// open are the GPUs of each process, looks the processes that were looked at. A look waits for slow.
	open  map[int][]gpu.UUID
	looks []int
	slow  chan struct{}
	// unknown: it cannot be seen what a process has open.
	unknown bool
}

func (o *opening) opens(pid int) func(gpu.UUID) bool {
	if o.slow != nil {
		<-o.slow
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looks = append(o.looks, pid)
	its := o.open[pid]
	if o.unknown {
		return nil
	}
	return func(u gpu.UUID) bool { return slices.Contains(its, u) }
}

// listed lists processes on GPU B, and says what becomes of them.
func (o *opening) listed(t *testing.T, s *Sampler, pids ...int) []Process {
	t.Helper()
	var all []gpu.DeviceProcess
	for _, pid := range pids {
		all = append(all, on(pid, gib))
	}
	o.readings = []gpu.Reading{reads(gpuA, on(100, gib)), reads(gpuB, all...)}
	d, _ := o.round(t, s).Device(Device{GPU: gpuB})
	return d.Processes.Value
}

// openingNode has a job with process 100 on GPU A, whose node the process has open.
func openingNode(t *testing.T) (*opening, *Sampler) {
	o := &opening{node: newNode(t), open: map[int][]gpu.UUID{100: {gpuA}}}
	o.process(t, 100, 1)
	o.slots[100] = slot1
	o.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1}}
	s := NewSampler(Options{Source: o, Site: o, Opens: o.opens, Interval: time.Second, Proc: o.proc,
		Now: func() time.Time { return o.now }})
	s.Pace(time.Second, 5*time.Minute)
	return o, s
}

// TestListedUnderAnothersPID: a process that is listed where it has no place, and does not have the GPU's node open, is
// not the one that uses the GPU. It is its own where it has its place.
func TestListedUnderAnothersPID(t *testing.T) {
	o, s := openingNode(t)
	o.process(t, 300, 1) // of no slot
	for i := range 3 {
		for _, p := range o.listed(t, s, 100, 300) {
			if p.Owner != OwnerEnded || p.Slot != (SlotKey{}) || p.Started != 1 || !p.Kept() {
				t.Errorf("sample %d: %+v", i, p)
			}
		}
		a, _ := s.Snapshot().Device(wholeA)
		if p := a.Processes.Value[0]; p.Owner != OwnerSlot || p.Slot != slot1 {
			t.Errorf("sample %d, on its own GPU: %+v", i, p)
		}
	}
	o.open = map[int][]gpu.UUID{100: {gpuA, gpuB}, 300: {gpuB}}
	for range 2 {
		got := o.listed(t, s, 100, 300)
		if got[0].Owner != OwnerSlot || got[1].Owner != OwnerNone {
			t.Errorf("with the node open: %+v", got)
		}
		o.open, o.looks = nil, nil // who was seen once is not looked at again
	}
	if len(o.looks) > 0 {
		t.Errorf("looked at again: %v", o.looks)
	}
	o.process(t, 300, 2)
	if p := o.listed(t, s, 100, 300)[1]; p.Owner != OwnerEnded {
		t.Errorf("the next process with the PID: %+v", p)
	}
}

// TestOpensNotAskedAtItsPlace: no file is looked at for a process that is where its slot has a reservation, or for an
// MPS server.
func TestOpensNotAskedAtItsPlace(t *testing.T) {
	o, s := openingNode(t)
	o.process(t, 200, 1)
	o.process(t, 400, 1)
	o.slots[200], o.servers[400] = slot2, true
	o.bookings = append(o.bookings, Reservation{Slot: slot2, Device: Device{GPU: gpuB, MIG: "MIG-1"}, Share: 1})
	if got := o.listed(t, s, 200, 400); got[0].Owner != OwnerSlot || got[1].Owner != OwnerServer || len(o.looks) > 0 {
		t.Errorf("%+v, looked at %v", got, o.looks)
	}
}

// TestOpensNotKnown: while it is not known which files a process has open, another one may use the GPU under its PID.
// So it is while it is not known whose the process is.
func TestOpensNotKnown(t *testing.T) {
	check := func(o *opening, s *Sampler, owner Owner, slot SlotKey) {
		t.Helper()
		if p := o.listed(t, s, 100)[0]; p.Owner != owner || p.Slot != slot || p.Kept() != (owner == OwnerEnded) {
			t.Errorf("%+v, want it to be %s's", p, owner)
		}
	}
	o, s := openingNode(t)
	o.slow, o.open[100] = make(chan struct{}), []gpu.UUID{gpuA, gpuB}
	s.Pace(time.Second, time.Millisecond)
	check(o, s, OwnerEnded, SlotKey{})
	close(o.slow)
	s.Pace(time.Second, 5*time.Minute)
	check(o, s, OwnerSlot, slot1)

	o, s = openingNode(t)
	o.unknown, o.open[100] = true, []gpu.UUID{gpuA, gpuB}
	check(o, s, OwnerEnded, SlotKey{})
	o.unknown = false
	check(o, s, OwnerSlot, slot1)

	o, s = openingNode(t)
	cgroup := o.cgroup(100)
	if err := errors.Join(os.MkdirAll(filepath.Dir(cgroup), 0o755), unix.Mkfifo(cgroup, 0o600)); err != nil {
		t.Fatal(err)
	}
	s.Pace(time.Second, 100*time.Millisecond)
	if p := o.listed(t, s, 100)[0]; p.Owner != OwnerEnded && p.Owner != OwnerUnknown || !p.Unclear() {
		t.Errorf("not known whose it is: %+v", p)
	}
	if err := proctree.AnswerPipe(cgroup, ""); err != nil {
		t.Error(err)
	}
}

// TestGraphicsUnderAnothersPID: graphics does not count against a job that does not have the node open, either. Of no
// job it is left out.
func TestGraphicsUnderAnothersPID(t *testing.T) {
	o, s := openingNode(t)
	o.process(t, 300, 1)
	for _, owner := range []Owner{OwnerEnded, OwnerSlot} {
		if owner == OwnerSlot {
			o.open[100] = []gpu.UUID{gpuA, gpuB}
		}
		its, display := on(100, gib), on(300, gib)
		its.Graphics, display.Graphics = true, true
		o.readings = []gpu.Reading{reads(gpuA, on(100, gib)), reads(gpuB, its, display)}
		d, _ := o.round(t, s).Device(Device{GPU: gpuB})
		if got := d.Processes.Value; len(got) != 1 || got[0].PID != 100 || got[0].Owner != owner || slices.Contains(o.looks, 300) {
			t.Errorf("%+v, want it to be %s's; looked at %v", got, owner, o.looks)
		}
	}
}

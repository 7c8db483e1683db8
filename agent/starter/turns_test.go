package starter

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// hold puts a pipe in the place of a file. Who reads the file waits; held waits for the first to open
// it, and release ends the file for all.
func hold(t *testing.T, file string) (held, release func()) {
	t.Helper()
	pipe := file + ".pipe"
	if err := errors.Join(os.Remove(file), unix.Mkfifo(pipe, 0o600), os.Link(pipe, file)); err != nil {
		t.Fatal(err)
	}
	var w *os.File
	held = func() {
		var err error
		if w, err = os.OpenFile(pipe, os.O_WRONLY, 0); err != nil {
			t.Fatal(err)
		}
	}
	release = func() {
		if err := errors.Join(os.Remove(file), os.WriteFile(file, nil, 0o600), w.Close()); err != nil {
			t.Error(err)
		}
		var others sync.WaitGroup // those that found the pipe and open it only now
		ended := make(chan struct{})
		t.Cleanup(func() { close(ended); others.Wait() })
		others.Go(func() {
			for {
				if w, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
					_ = w.Close()
				}
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	return held, release
}

// TestDeepLooksOfCallers: while gpuslotd looks below the slices of slots for a caller, others of its
// owner are refused and do not wait. Neither another account nor gpuslotd itself waits for them.
func TestDeepLooksOfCallers(t *testing.T) {
	n := deepNode(t)
	subuid := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(subuid, []byte("alice:100000:65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Turns = room.NewTurns(room.NewOwners(subuid))
	n.has(t, "slot1_1", "", "200\n")
	slow := filepath.Join(n.has(t, "slot1_2", "", ""), "cgroup.procs")
	held, release := hold(t, slow)
	var look sync.WaitGroup
	look.Go(func() {
		if _, err := n.Identify(100001, 201); !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("a look that finds nothing: %v", err)
		}
	})
	held()
	for uid, want := range map[uint32]error{100001: room.ErrBusy, 100002: room.ErrBusy, 1001: nil, 0: nil, n.Own: nil} {
		var c Caller
		var err error
		until(t, func() bool { // root's and gpuslotd's own wait a moment for a look, and ask again
			c, err = n.Identify(uid, 200)
			return !errors.Is(err, deep.ErrHidden)
		})
		if !errors.Is(err, want) || want == nil && !SameSlot(c.Starter.Slot, "slot1_1") {
			t.Errorf("a look for uid %d beside one of uid 100001: %+v, %v, want %v", uid, c, err, want)
		}
	}
	release()
	look.Wait()
	if _, err := n.Identify(100002, 200); err != nil {
		t.Errorf("a look afterwards: %v", err)
	}
}

// TestDeepLooksOfAll: callers of many accounts have few looks at a time.
func TestDeepLooksOfAll(t *testing.T) {
	n := deepNode(t)
	n.Turns = room.NewTurns(nil)
	for uid := range uint32(4) {
		if _, err := n.Turns.Deep.Enter(1001 + uid); err != nil {
			t.Fatal(err)
		}
	}
	n.has(t, "slot1_1", "", "200\n")
	if _, err := n.Identify(2000, 200); !errors.Is(err, room.ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	until(t, func() bool { // it waits a moment for a look, and asks again
		_, err := n.unifiedCgroup(200)
		return err == nil
	})
}

// TestReadsOfCallers: nothing is read for a caller without a place, of which each owner has few. Others are read for
// meanwhile. A place ends with the caller's wait, also if the kernel does not answer. A pipe stands for such a file.
func TestReadsOfCallers(t *testing.T) {
	f := newFakeProc(t)
	n := f.fs()
	const most = 4
	n.Turns = &room.Turns{Reads: room.New(nil, most, 100, time.Millisecond)}
	hook := Caller{UID: 3001, PID: 4000, Started: proctree.StartOf(4000), Hook: true, Starter: f.starter(102, "slot1_3")}
	f.Add(proctree.Process{PID: 4000, Parent: 102, Comm: "prepare", Exe: "/usr/libexec/gpuslot/gpuslot-start", UID: 3001})
	program := f.Program("/usr/libexec/gpuslot/gpuslot-start")
	peer := Peer{UID: 3001, PID: 4002}
	f.Add(proctree.Process{PID: peer.PID, Parent: proctree.Startd, Comm: "gpuslot-condor", UID: peer.UID})
	job, other, root := Peer{UID: 3001, PID: 4003}, Peer{UID: 1002, PID: 4004}, Peer{UID: 0, PID: 4005}
	f.starter(103, "slot1_4")
	for _, p := range []Peer{job, other, root} {
		f.Add(proctree.Process{PID: p.PID, Parent: 103, Comm: "job", UID: p.UID})
	}
	take := func() (leave []func()) {
		for range most {
			end, err := n.Turns.Reads.Enter(3001)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, end)
		}
		return leave
	}
	taken := take()
	answer := f.Hold(job.PID, "stat") // a read would wait
	if _, err := n.identifyHeld(noHandle, job); !errors.Is(err, room.ErrBusy) {
		t.Errorf("without a place: %v", err)
	}
	if n.PeerBelowStartd(peer) || n.IsHook(hook, program) {
		t.Error("a caller was known without a place")
	}
	for _, p := range []Peer{other, root} {
		if c, err := n.identifyHeld(noHandle, p); err != nil || c.Starter.PID != 103 {
			t.Errorf("uid %d beside uid 3001: %+v, %v", p.UID, c, err)
		}
	}
	for _, leave := range taken {
		leave()
	}
	if _, err := n.identifyHeld(noHandle, job); !errors.Is(err, process.ErrHeld) {
		t.Errorf("the kernel does not answer: %v", err)
	}
	for _, leave := range take() {
		leave()
	}
	answer()
	until(t, func() bool { _, err := n.Stat(job.PID); return err == nil })
	if c, err := n.identifyHeld(noHandle, job); err != nil || c.Starter.PID != 103 {
		t.Errorf("afterwards: %+v, %v", c, err)
	}
	if !n.PeerBelowStartd(peer) || !n.IsHook(hook, program) {
		t.Error("afterwards the startd's program or the hook is not known")
	}
}

// TestPlacesOfCallers: callers of all accounts have fewer places than there are for reads at a time.
func TestPlacesOfCallers(t *testing.T) {
	turns := room.NewTurns(nil)
	var entered atomic.Int64
	var callers sync.WaitGroup
	for uid := range uint32(2 * reads.MostAtOnce) {
		callers.Go(func() {
			if _, err := turns.Reads.Enter(1001 + uid); err == nil {
				entered.Add(1)
			}
		})
	}
	callers.Wait()
	if n := entered.Load(); n < 4 || n > reads.MostAtOnce-4 {
		t.Errorf("%d callers may read at a time, of %d reads", n, reads.MostAtOnce)
	}
}

package starter

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/room"
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
		if c, err := n.Identify(uid, 200); !errors.Is(err, want) || want == nil && !SameSlot(c.Starter.Slot, "slot1_1") {
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

// TestReadsOfCallers: the reads of a caller that the kernel lets wait have a few threads, and those that
// get none in time are refused. Others are read meanwhile. A pipe stands for such a file.
func TestReadsOfCallers(t *testing.T) {
	f := newFakeProc(t)
	n := f.fs()
	const most = 4
	n.Turns = &room.Turns{Reads: room.New(nil, most, 100, time.Millisecond)}
	f.starter(100, "slot1_1")
	hook := Caller{UID: 1001, PID: 4000, Started: proctree.StartOf(4000), Hook: true, Starter: f.starter(102, "slot1_3")}
	f.Add(proctree.Process{PID: 4000, Parent: 102, Comm: "prepare", Exe: "/usr/libexec/gpuslot/gpuslot-start", UID: 1001})
	f.Add(proctree.Process{PID: 4001, Parent: 102, Comm: "condor_starter"})
	program := f.Program("/usr/libexec/gpuslot/gpuslot-start")
	peer := Peer{UID: 1001, PID: 4002}
	f.Add(proctree.Process{PID: peer.PID, Parent: proctree.Startd, Comm: "gpuslot-condor", UID: peer.UID})
	text := filepath.Join(f.Root, "100/cgroup")
	good, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	held, release := hold(t, text)
	busy := make(chan bool)
	for range 3 * most {
		go func() {
			_, err := n.Identify(1001, 100)
			busy <- errors.Is(err, room.ErrBusy)
		}()
	}
	held()
	for range 2 * most {
		if !<-busy {
			t.Error("a read without a place was not refused")
		}
	}
	f.starter(101, "slot1_2")
	for _, uid := range []uint32{1002, 0} {
		if c, err := n.Identify(uid, 101); err != nil || c.Starter.PID != 101 {
			t.Errorf("uid %d beside uid 1001: %+v, %v", uid, c, err)
		}
	}
	if n.PeerBelowStartd(peer) || n.IsHook(hook, program) {
		t.Error("a cgroup was read without a place")
	}
	release()
	for range most {
		if <-busy {
			t.Error("a read with a place was refused")
		}
	}
	if err := os.WriteFile(text, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := n.Identify(1001, 100); err != nil || c.Starter.PID != 100 {
		t.Errorf("afterwards: %+v, %v", c, err)
	}
	if !n.PeerBelowStartd(peer) || !n.IsHook(hook, program) {
		t.Error("afterwards the startd's program or the hook is not known")
	}
}

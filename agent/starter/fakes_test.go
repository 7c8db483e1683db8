package starter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeProc is a /proc of processes that the test makes and ends.
type fakeProc struct{ proctree.Tree }

func newFakeProc(t testing.TB) fakeProc { return fakeProc{proctree.New(t)} }

// fs is the node as an agent of root, or of who runs the test, sees it.
func (f fakeProc) fs() Node { return f.of(uint32(os.Getuid())) }

func (f fakeProc) of(agent uint32) Node { return Node{FS: process.FS{Root: f.Root}, Own: agent} }

// starter adds the condor_starter of a slot.
func (f fakeProc) starter(pid int, slot string) Starter {
	return Starter{ID: f.Starter(pid, slot), Slot: slot}
}

// until waits for what gpuslotd sees in a later round, if a look of its own does not end soon.
func until(t *testing.T, is func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("it did not come")
		}
	}
}

// meanwhile does something once a file is read, before the reader has its text. A pipe stands for the file. The function
// that it returns waits for that.
func (f fakeProc) meanwhile(t *testing.T, name string, do func()) (wait func()) {
	t.Helper()
	name = filepath.Join(f.Root, name)
	text, err := os.ReadFile(name)
	if err := errors.Join(err, os.Remove(name), unix.Mkfifo(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		pipe, err := os.OpenFile(name, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			do()
			_, err = pipe.Write(text)
			err = errors.Join(err, pipe.Close())
		}
		done <- err
	}()
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

package starter

import (
	"os"
	"testing"
	"time"

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

package agent

import (
	"os"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeProc is a /proc of processes that the test makes and ends.
type fakeProc struct{ proctree.Tree }

func newFakeProc(t testing.TB) fakeProc { return fakeProc{proctree.New(t)} }

// fs is the node as an agent of root, or of who runs the test, sees it.
func (f fakeProc) fs() starter.Node { return f.of(uint32(os.Getuid())) }

// arrived are the starters that came since the last look.
func (f fakeProc) arrived(t *testing.T, last *starter.Arrivals, now time.Time) []starter.Starter {
	t.Helper()
	found, err := last.New(f.fs(), now)
	if err != nil {
		t.Error(err)
	}
	return found
}

func (f fakeProc) of(agent uint32) starter.Node {
	return starter.Node{FS: process.FS{Root: f.Root}, Own: agent}
}

// caller is a process as it is identified, of a starter's job.
func (f fakeProc) caller(uid uint32, pid int, s starter.Starter) starter.Caller {
	c, _ := f.fs().Identify(uid, pid) // below that starter or not
	c.Starter = s
	return c
}

// starter adds the condor_starter of a slot.
func (f fakeProc) starter(pid int, slot string) starter.Starter {
	return starter.Starter{ID: f.Starter(pid, slot), Slot: slot}
}

package starter

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/proctree"
)

// A starter is found when it comes, and what is none is not read again.
func TestStartersThatCome(t *testing.T) {
	f := newFakeProc(t)
	s, now := &Arrivals{}, time.Now()
	f.Add(proctree.Process{PID: 50, Parent: 1, Comm: "bash"})
	f.Add(proctree.Process{PID: 60, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"}) // or its child before execve
	f.starter(100, "slot1_1")
	if got := s.New(f.fs(), now); len(got) != 1 || got[0].Slot != "slot1_1" {
		t.Fatalf("%+v", got)
	}
	f.starter(50, "slot1_2") // the PID is another process's now
	f.starter(60, "slot1_3")
	if got := s.New(f.fs(), now.Add(time.Second)); len(got) != 1 || got[0].Slot != "slot1_3" {
		t.Errorf("%+v", got)
	}
	if got := s.New(f.fs(), now.Add(lookAgain)); len(got) != 3 {
		t.Errorf("after a while: %+v", got)
	}
}

package starter

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// A starter is found when it comes, and what is none is not read again.
func TestStartersThatCome(t *testing.T) {
	f := newFakeProc(t)
	s, now := &Arrivals{}, time.Now()
	f.Add(proctree.Process{PID: 50, Parent: 1, Comm: "bash"})
	f.Add(proctree.Process{PID: 60, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"}) // or its child before execve
	f.starter(100, "slot1_1")
	if got, err := s.New(f.fs(), now); err != nil || len(got) != 1 || got[0].Slot != "slot1_1" {
		t.Fatalf("%+v", got)
	}
	f.starter(50, "slot1_2") // the PID is another process's now
	f.starter(60, "slot1_3")
	if got, err := s.New(f.fs(), now.Add(time.Second)); err != nil || len(got) != 1 || got[0].Slot != "slot1_3" {
		t.Errorf("%+v", got)
	}
	if got, err := s.New(f.fs(), now.Add(lookAgain)); err != nil || len(got) != 3 {
		t.Errorf("after a while: %+v, %v", got, err)
	}
}

// TestStartersThatCannotBeRead: with an error there may be more starters than are found.
func TestStartersThatCannotBeRead(t *testing.T) {
	for _, name := range []string{"100/stat", "100/status", "100/cmdline", "900/stat", ""} {
		f := newFakeProc(t)
		f.starter(100, "slot1_1")
		f.starter(101, "slot1_2")
		n := f.fs()
		if name == "" {
			n.Root += "/none"
		} else {
			f.unreadable(t, name)
		}
		if got, err := (&Arrivals{}).New(n, time.Now()); err == nil {
			t.Errorf("without %s: %+v", name, got)
		}
	}
}

// TestStarterThatEndsMeanwhile: one that ends while it is looked at is none, and no error. One whose startd ends then is
// an error: it may have a job.
func TestStarterThatEndsMeanwhile(t *testing.T) {
	for _, startd := range []bool{false, true} {
		f := newFakeProc(t)
		f.starter(100, "slot1_1")
		other := f.starter(101, "slot1_2")
		wait := f.meanwhile(t, "100/cmdline", func() {
			if startd {
				f.Add(proctree.Process{PID: 100, Parent: 1, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter"})
			} else {
				f.End(100)
			}
		})
		found, err := (&Arrivals{}).New(f.fs(), time.Now())
		wait()
		if (err != nil) != startd || len(found) != 1 || found[0] != other {
			t.Errorf("its startd ended: %t; %v, and %+v is found", startd, err, found)
		}
	}
}

// TestProcessesThatAreNotAnswered: a user's process that the kernel does not answer (process.ErrHeld) is neither a
// starter nor a startd. One of root's may be.
func TestProcessesThatAreNotAnswered(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(100, "slot1_1")
	f.Add(proctree.Process{PID: 300, Parent: 1, Comm: "x", UID: 3000})
	f.Hold(300, "stat", "status")
	daemons, err := f.fs().startds()
	if found, no := (&Arrivals{}).New(f.fs(), time.Now()); !slices.Equal(found, []Starter{s}) || err != nil || no != nil || len(daemons) != 1 {
		t.Errorf("starters %v, %v; startds %v, %v", found, no, daemons, err)
	}
	if o := f.fs().OriginOf(300); !o.Before(s, Account{1001, true}) || o.Before(s, Account{3000, true}) {
		t.Errorf("it is of the slot's next job: %+v", o)
	}
	f.Add(proctree.Process{PID: 302, Parent: 1, Comm: "x"})
	f.Hold(302, "stat")
	if found, no := (&Arrivals{}).New(f.fs(), time.Now()); no != nil || len(found) != 1 {
		t.Errorf("beside another program of root's: %v, %v", found, no)
	}
	f.Add(proctree.Process{PID: 301, Parent: 1, Comm: "condor_startd"})
	f.Hold(301, "stat")
	if found, no := (&Arrivals{}).New(f.fs(), time.Now()); !errors.Is(no, process.ErrHeld) || len(found) != 1 {
		t.Errorf("beside one of root's: %v, %v", found, no)
	}
}

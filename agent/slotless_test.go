package agent

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
)

// TestStartersWithoutASlot: HTCondor that hides the slots of its starters closes the
// GPUs with the reason, and no job can do that.
func TestStartersWithoutASlot(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	denied := func(starter, pid int, cgroup string) {
		t.Helper()
		ta.proc.add(proc{pid: startdPID, parent: 1, comm: "condor_startd", exe: "/usr/sbin/condor_startd"})
		ta.proc.add(proc{pid: starter, parent: startdPID, comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: []string{"condor_starter", "-f", "-a", "7.0"}})
		ta.proc.add(proc{pid: pid, parent: starter, comm: "prepare", uid: 4711, cgroup: cgroup})
		c, err := ta.proc.fs().identify(4711, pid, rootsOwn)
		if c.Hook && !errors.Is(err, errSlotless) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err != nil {
			ta.denied(c, err)
		}
	}
	// A job asks, and what stands in the place of one hook asks again and again.
	for i := range 20 {
		denied(100, 1000+i, cgroupOf("slot1_1"))
		denied(101, 2000+i, "")
	}
	// A starter that a job made up.
	for i := range 20 {
		ta.proc.add(proc{pid: 3000 + i, parent: 101, comm: "condor_starter", exe: "/usr/sbin/condor_starter", uid: 4711})
		ta.proc.add(proc{pid: 4000 + i, parent: 3000 + i, comm: "prepare", uid: 4711})
		c, err := ta.proc.fs().identify(4711, 4000+i, rootsOwn)
		ta.denied(c, err)
	}
	if why := ta.reason(0); why != "" {
		t.Fatalf("a job closes the GPU: %s", why)
	}
	denied(102, 102+1000, "")
	denied(103, 103+1000, "")
	if why := ta.reason(0); !strings.Contains(why, "3 hooks in a row were denied") || !strings.Contains(why, "STARTER_LOG_NAME_APPEND") {
		t.Errorf("START hears %q", why)
	}
	if n := ta.counted("gpuslot_admissions_total", "reason", "no-slot"); n < 3 {
		t.Errorf("%g denials are counted", n)
	}
	if why := ta.slotless.closed(time.Now().Add(slotlessFor + time.Second)); why != "" {
		t.Errorf("it is never tried again: %s", why)
	}
	s := ta.proc.starter(200, "slot1_1")
	ta.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 4096))
	if why := ta.reason(0); why != "" {
		t.Errorf("after a starter with a slot: %s", why)
	}
}

// TestInventedGPUs: a hook's place that names GPUs at will leaves no more in the
// history than a few lines of the node's own.
func TestInventedGPUs(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s := ta.proc.starter(100, "slot1_1")
	job := jobOn(s, "alice", uuid(0), 4096)
	for i := range 63 {
		job.AssignedGPUs = append(job.AssignedGPUs, string(uuid(1+i)))
	}
	for range 100 {
		ta.prepare(hookOf(s, 1000), job)
	}
	ta.history.Flush()
	events, err := history.Events(ta.config())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range events {
		if e.Slot == "" {
			continue
		}
		n++
		if e.GPU != "" && e.GPU != uuid(0) {
			t.Fatalf("an event of %s, which nobody has", e.GPU)
		}
		if len(e.Text) > mostNoted+8 {
			t.Errorf("an event of %d bytes", len(e.Text))
		}
	}
	if n == 0 || n > mostConfirmed {
		t.Errorf("%d events", n)
	}
}

// panicking is an agent with a defect.
type panicking struct{ *Agent }

func (panicking) here(Caller) *api.Here { panic("a defect") }

// TestPanic: a conversation that panics ends alone.
func TestPanic(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.proc.starter(1000, "slot1_1")
	s := newServer(ta.log, ta.proc.fs(), ta.own, panicking{ta.Agent})
	ta.proc.add(proc{pid: os.Getpid(), parent: 1000, comm: "job", uid: ta.own, cgroup: cgroupOf("slot1_1")})
	converseOnce(t, s, api.Request{Op: api.OpHere}, true)
	if n := ta.count("gpuslot_conversation_panics_total"); n != 1 {
		t.Errorf("%g panics counted", n)
	}
}

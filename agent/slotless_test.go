package agent

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestStartersWithoutASlot: HTCondor that hides the slots of its starters closes the
// GPUs with the reason, and no job can do that.
func TestStartersWithoutASlot(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	denied := func(above, pid int, cgroup string) {
		t.Helper()
		ta.proc.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
		ta.proc.Add(proctree.Process{PID: above, Parent: proctree.Startd, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: []string{"condor_starter", "-f", "-a", "7.0"}})
		ta.proc.Add(proctree.Process{PID: pid, Parent: above, Comm: "prepare", UID: 4711, Cgroup: cgroup})
		c, err := ta.proc.fs().Identify(4711, pid)
		if c.Hook && !errors.Is(err, starter.ErrSlotless) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err != nil {
			ta.denied(c, err)
		}
	}
	// A job asks, and what stands in the place of one hook asks again and again.
	for i := range 20 {
		denied(100, 1000+i, proctree.CgroupOf("slot1_1"))
		denied(101, 2000+i, "")
	}
	// A starter that a job made up.
	for i := range 20 {
		ta.proc.Add(proctree.Process{PID: 3000 + i, Parent: 101, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", UID: 4711})
		ta.proc.Add(proctree.Process{PID: 4000 + i, Parent: 3000 + i, Comm: "prepare", UID: 4711})
		c, err := ta.proc.fs().Identify(4711, 4000+i)
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

func (panicking) here(starter.Caller) *api.Here { panic("a defect") }

// TestPanic: a conversation that panics ends alone.
func TestPanic(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.proc.starter(1000, "slot1_1")
	s := newServer(ta.log, ta.proc.of(ta.own), panicking{ta.Agent})
	ta.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1000, Comm: "job", UID: ta.own, Cgroup: proctree.CgroupOf("slot1_1")})
	converseOnce(t, s, api.Request{Op: api.OpHere}, true)
	if n := ta.count("gpuslot_conversation_panics_total"); n != 1 {
		t.Errorf("%g panics counted", n)
	}
}

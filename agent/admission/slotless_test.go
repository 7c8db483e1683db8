package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestStartersWithoutASlot: HTCondor that hides the slots of its starters closes the
// GPUs with the reason, and no job can do that.
func TestStartersWithoutASlot(t *testing.T) {
	n := newNode(t)
	deny := func(above, pid int, cgroup string) {
		t.Helper()
		n.proc.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
		n.proc.Add(proctree.Process{PID: above, Parent: proctree.Startd, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: []string{"condor_starter", "-f", "-a", "7.0"}})
		n.proc.Add(proctree.Process{PID: pid, Parent: above, Comm: "prepare", UID: 4711, Cgroup: cgroup})
		c, err := n.view.Identify(4711, pid)
		if c.Hook && !errors.Is(err, starter.ErrSlotless) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err != nil {
			n.Denied(c, err)
		}
	}
	// A job asks, and what stands in the place of one hook asks again and again.
	for i := range 20 {
		deny(100, 1000+i, proctree.CgroupOf("slot1_1"))
		deny(101, 2000+i, "")
	}
	// A starter that a job made up.
	for i := range 20 {
		n.proc.Add(proctree.Process{PID: 3000 + i, Parent: 101, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", UID: 4711})
		n.proc.Add(proctree.Process{PID: 4000 + i, Parent: 3000 + i, Comm: "prepare", UID: 4711})
		c, err := n.view.Identify(4711, 4000+i)
		n.Denied(c, err)
	}
	if why := n.Preparer.Closed(time.Now()); why != "" {
		t.Fatalf("a job closes the GPU: %s", why)
	}
	deny(102, 102+1000, "")
	deny(103, 103+1000, "")
	if why := n.Preparer.Closed(time.Now()); !strings.Contains(why, "3 hooks in a row were denied") || !strings.Contains(why, "STARTER_LOG_NAME_APPEND") {
		t.Errorf("START hears %q", why)
	}
	if denials := n.counts.admissions[[2]string{denied, "no-slot"}]; denials < 3 {
		t.Errorf("%d denials are counted", denials)
	}
	if why := n.slotless.closed(time.Now().Add(slotlessFor + time.Second)); why != "" {
		t.Errorf("it is never tried again: %s", why)
	}
	s := n.starter(200, "slot1_1")
	n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 4096))
	if why := n.Preparer.Closed(time.Now()); why != "" {
		t.Errorf("after a starter with a slot: %s", why)
	}
}

// TestInventedGPUs: a hook's place that names GPUs at will leaves no more in the
// history than a few lines of the node's own.
func TestInventedGPUs(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	job := jobOn(s, "alice", uuid(0), 4096)
	for i := range 63 {
		job.AssignedGPUs = append(job.AssignedGPUs, string(uuid(1+i)))
	}
	for range 100 {
		n.prepare(hookOf(s, 1000), job)
	}
	kept := 0
	for _, e := range n.events {
		if e.Slot == "" {
			continue
		}
		kept++
		if _, ok := n.state.Plan.Find(e.GPU); e.GPU != "" && !ok {
			t.Fatalf("an event of %s, which no job has", e.GPU)
		}
		if len(e.Text) > longestNote+8 {
			t.Errorf("an event of %d bytes", len(e.Text))
		}
	}
	if kept == 0 || kept > mostConfirmed {
		t.Errorf("%d events", kept)
	}
}

//go:build cgo

package agent

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// simulatedH200 has partitions for four shares, on the simulated driver 590.
func simulatedH200(t *testing.T) *simulated {
	t.Helper()
	inv := inventoryOf(1)
	g := &inv.GPUs[0]
	inv.Driver, inv.CUDA = "590.48.01", "13.1"
	g.Name, g.Memory, g.Capability, g.Multiprocessors = "NVIDIA H200", 143771, gpu.ComputeCapability{Major: 9}, 132
	s := simulatedNode(t, inv.Driver, "H200", inv, partitionedIn(4))
	s.jobs = jobs.New(s.proc) // without whatever HTCondor this machine runs
	s.newAdmission()
	s.connect()
	return s
}

// starter is a process that stands for the condor_starter of a slot.
func (s *simulated) starter(slot string) (starter.Starter, func()) {
	s.t.Helper()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = c.Wait()
		}
	}
	s.t.Cleanup(end)
	p, err := s.proc.Stat(c.Process.Pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return starter.Starter{ID: process.ID{PID: c.Process.Pid, Started: p.Started}, Slot: slot}, end
}

// admitted is the environment of a job.
func (s *simulated) admitted(st starter.Starter) map[string]string {
	s.t.Helper()
	mib := int64(8192)
	reply := s.admission.Prepare(s.t.Context(), starter.Caller{UID: s.own, PID: st.PID, Hook: true, Starter: st}, &api.Job{ID: "1.0", Owner: "alice", AssignedGPUs: []string{string(s.gpu)}, ProvisionedVRAM: &mib})
	if reply.Grant == nil {
		s.t.Fatalf("%s was not admitted: %+v %s", st.Slot, reply.Refusal, reply.Error)
	}
	return reply.Grant.Environment
}

// simjob runs a simulated job until its input ends, and returns its first line of
// output and its last.
func (s *simulated) simjob(env map[string]string) (first string, end func() string) {
	s.t.Helper()
	c := exec.Command(filepath.Join(s.programs, "simjob"), "context", "devices", "until", "eof")
	c.Dir, c.Env = "/", []string{"GPUSLOT_SIM_STATE=" + s.node.State, "LD_LIBRARY_PATH=" + s.programs}
	for k, v := range env {
		c.Env = append(c.Env, k+"="+v)
	}
	in, errIn := c.StdinPipe()
	out, errOut := c.StdoutPipe()
	if errIn != nil || errOut != nil {
		s.t.Fatal(errIn, errOut)
	}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "multiprocessors") || strings.Contains(lines.Text(), "error") {
			break
		}
	}
	done := false
	end = func() string {
		if !done {
			done = true
			_ = in.Close()
			rest, _ := io.ReadAll(out)
			_ = c.Wait()
			said = append(said, string(rest))
		}
		return strings.Join(said, "\n")
	}
	s.t.Cleanup(func() { end() })
	return strings.Join(said, "\n"), end
}

// TestSimulatedPartitions: jobs on the simulated driver 590, end to end.
func TestSimulatedPartitions(t *testing.T) {
	s := simulatedH200(t)
	if why := s.view.Load().reasons[s.gpu]; why != "" {
		t.Fatal(why)
	}
	one, endOne := s.starter("slot1_1")
	two, _ := s.starter("slot1_2")
	a, b := s.admitted(one), s.admitted(two)
	if a[mps.PartitionVariable] == b[mps.PartitionVariable] || !strings.HasPrefix(a[mps.PartitionVariable], string(s.gpu)+"/") {
		t.Fatalf("partitions %s and %s", a[mps.PartitionVariable], b[mps.PartitionVariable])
	}
	saidA, endA := s.simjob(a)
	saidB, endB := s.simjob(b)
	for _, said := range []string{saidA, saidB} {
		if !strings.Contains(said, " 32 multiprocessors") {
			t.Errorf("in its partition a job says %q", said)
		}
	}
	bare := map[string]string{}
	for k, v := range a {
		if k != mps.PartitionVariable {
			bare[k] = v
		}
	}
	if said, _ := s.simjob(bare); !strings.Contains(said, "915") {
		t.Errorf("without a partition a job says %q", said)
	}
	if got := s.status().GPUs[0].Jobs; len(got) != 2 || got[0].SMs == nil || *got[0].SMs != 32 {
		t.Errorf("status: %+v", got)
	}

	s.killDaemon()
	s.apply(t.Context(), false)
	endA()
	endB()
	if why := s.view.Load().reasons[s.gpu]; why != "" {
		// The clients of before take a moment to go.
		deadline := time.Now().Add(5 * time.Minute)
		for ; why != "" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			s.apply(t.Context(), false)
			why = s.view.Load().reasons[s.gpu]
		}
		if why != "" {
			t.Fatal(why)
		}
	}
	// Two slots still live; the next two jobs get what neither of them names.
	three, _ := s.starter("slot1_3")
	four, _ := s.starter("slot1_4")
	seen := map[string]bool{a[mps.PartitionVariable]: true, b[mps.PartitionVariable]: true}
	for _, st := range []starter.Starter{three, four} {
		env := s.admitted(st)
		if seen[env[mps.PartitionVariable]] {
			t.Errorf("%s has the partition of another job: %s", st.Slot, env[mps.PartitionVariable])
		}
		seen[env[mps.PartitionVariable]] = true
		if said, _ := s.simjob(env); !strings.Contains(said, " 32 multiprocessors") {
			t.Errorf("in a new partition a job says %q", said)
		}
	}
	endOne()
	s.sweeper.now()
	five, _ := s.starter("slot1_1")
	if env := s.admitted(five); env[mps.PartitionVariable] == "" || env[mps.PartitionVariable] == b[mps.PartitionVariable] {
		t.Errorf("after a slot ended: %v", env)
	}
}

// killDaemon ends the control daemon as a crash does.
func (s *simulated) killDaemon() {
	s.t.Helper()
	checked := s.view.Load().daemons[s.gpu].Checked
	if err := syscall.Kill(checked.PID, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	for s.daemons.QuickCheck(s.gpu, checked).Err == nil { // until the kernel is done with it
		time.Sleep(time.Millisecond)
	}
}

// TestSimulatedAgentRestart: the next agent proves the partitions that it finds,
// and a verification has one.
func TestSimulatedAgentRestart(t *testing.T) {
	s := simulatedH200(t)
	one, _ := s.starter("slot1_1")
	before, daemon := s.admitted(one)[mps.PartitionVariable], s.view.Load().daemons[s.gpu].Checked.Process()
	s.start(partitionedIn(4))
	s.jobs = jobs.New(s.proc)
	s.apply(context.Background(), false)
	if why := s.view.Load().reasons[s.gpu]; why != "" || s.view.Load().daemons[s.gpu].Checked.Process() != daemon {
		t.Errorf("%q, daemon %v was %v", why, s.view.Load().daemons[s.gpu].Checked.Process(), daemon)
	}
	two, endTwo := s.starter("slot1_2")
	if got := s.admitted(two)[mps.PartitionVariable]; got == before {
		t.Errorf("the next agent gives %s again", got)
	}
	if got := s.admitted(one)[mps.PartitionVariable]; got != before {
		t.Errorf("the job's partition is %s and was %s", got, before)
	}
	endTwo()
}

package agent

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestLeftoverOfAnotherIsNotKilled: a PID in the daemon's list is no reason to kill a
// process that is in no slot of the GPU, whatever its start time.
func TestLeftoverOfAnotherIsNotKilled(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	st := ta.proc.starter(1000, "slot1_1")
	ta.grant(st, 1000, "alice", uuid(0), 4096)
	victim := exec.Command("sleep", "600")
	victim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = victim.Wait(); close(ended) }()
	t.Cleanup(func() { _ = victim.Process.Kill(); <-ended })
	pid := victim.Process.Pid
	refused := func(name string, u gpu.UUID, p proctree.Process) {
		ta.proc.Add(p)
		if err := ta.killClient(u, pid, time.Now()); err == nil || errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		select {
		case <-ended:
			t.Fatalf("%s was killed", name)
		default:
		}
	}
	refused("no job's", uuid(0), proctree.Process{PID: pid, Parent: 1, Comm: "sshd", Cgroup: "/system.slice/ssh.service", Started: 1})
	refused("a job's, of another GPU", uuid(1), proctree.Process{PID: pid, Parent: 1000, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1"), Started: 1})
	if err := ta.killClient(uuid(0), pid, time.Now()); err != nil {
		t.Fatalf("the GPU's own: %v", err)
	}
	<-ended
}

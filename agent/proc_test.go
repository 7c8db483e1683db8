package agent

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestThreadThatRuns: with cgroup v1 a first thread that has ended is shown in the root,
// and its descriptors are closed; those of the threads that run are asked for.
func TestThreadThatRuns(t *testing.T) {
	f := newFakeProc(t)
	leader := thread{tid: 700, state: "Z", cgroup: "4:memory:/\n0::/\n"}
	ended := thread{tid: 701, state: "Z", cgroup: "4:memory:/\n0::/\n"}
	runs := thread{tid: 702, state: "S", cgroup: "4:memory:/htcondor/condor_var_lib_condor_execute_slot3_1@pool.test\n0::/\n", opened: "/dev/nvidia0"}
	f.add(proc{pid: 700, parent: 1, comm: "job", state: "Z", cgroup: "/", threads: []thread{leader, ended, runs}})
	if slot, err := f.fs().cgroupSlot(700); slot != "slot3_1@pool.test" || err != nil {
		t.Errorf("a job that hides behind its first thread is in slot %q, %v", slot, err)
	}
	if got := deviceHolders(f.fs().FS); len(got) != 1 || got[0] != (api.NodeHolder{PID: 700, Name: "job"}) {
		t.Errorf("the driver's device files are kept open by %+v", got)
	}
}

package condor

import (
	"strings"
)

// containers lets the containers that HTCondor itself starts on shared GPUs have
// their pipe directory, and keeps docker from starting any.
func (t *text) containers(n Node) {
	if len(n.Devices) == 0 {
		return
	}
	root := strings.TrimRight(n.PipeRoot, "/") + "/"
	t.line("")
	t.comment("Container universe: supervise binds the pipe directory. Without it this does; a site that sets",
		"SINGULARITY_BIND_EXPR itself adds it: strcat(\"/cvmfs\", $(GPUSLOT_BIND_EXPR)).")
	t.set("GPUSLOT_BIND_EXPR", `ifThenElse(MY.GPUSlotUUID =?= undefined, "", strcat(",%s", MY.GPUSlotUUID))`, root)
	if !n.Supervise {
		t.set("SINGULARITY_BIND_EXPR", "$(GPUSLOT_BIND_EXPR)")
	}
	t.comment("What HTCondor runs outside of a job's cgroup counts to no job: its test of a container, and docker.")
	t.set("SINGULARITY_RUN_TEST_BEFORE_JOB", "false")
	if len(n.shared()) > 0 {
		t.line("DOCKER =")
	}
}

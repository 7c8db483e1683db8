package condor

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// containers lets the containers that HTCondor itself starts on shared GPUs have
// their pipe directory.
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
	t.comment("The starter would run its test of a container with the job's environment, as the job's user, and",
		"outside the job's cgroup, where no limit holds.")
	t.set("SINGULARITY_RUN_TEST_BEFORE_JOB", "false")
	if !n.Docker {
		return
	}
	t.comment("Docker universe: the pipe directory of the slot's GPU as a volume. A site that sets",
		"DOCKER_MOUNT_VOLUMES itself adds $(GPUSLOT_VOLUMES) to it.")
	var volumes []string
	for i, d := range n.devices(func(d Device) bool { return d.Shared && !d.WithoutMPS }) {
		name := fmt.Sprintf("GPUSLOT%d", i)
		volumes = append(volumes, name)
		t.set("DOCKER_VOLUME_DIR_"+name, "%s", root+string(d.UUID))
		t.set("DOCKER_VOLUME_DIR_"+name+"_MOUNT_IF", "MY.GPUSlotUUID == %s", classad.Quote(string(d.UUID)))
	}
	t.set("GPUSLOT_VOLUMES", "%s", strings.Join(volumes, " "))
	t.set("DOCKER_VOLUMES", "$(DOCKER_VOLUMES) $(GPUSLOT_VOLUMES)")
	t.set("DOCKER_MOUNT_VOLUMES", "$(DOCKER_MOUNT_VOLUMES) $(GPUSLOT_VOLUMES)")
}

package condor

import (
	"strings"
	"testing"
)

// HTCondor's own tools read the volumes of docker jobs and the binds of
// container jobs as the starter of each slot type does, beside the site's.
func TestRealContainers(t *testing.T) {
	h := realHTCondor(t)
	n := examples()["whole"]
	n.Supervise, n.Docker = false, true
	h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, n))
	first := n.shared()[0].UUID
	if got, want := h.value(t, "DOCKER_VOLUME_DIR_GPUSLOT0"), "/run/gpuslot/mps/"+string(first); got != want {
		t.Errorf("docker volume %q, want %q", got, want)
	}
	for slot, want := range map[string]string{"AssignedGPUs = \"" + string(first) + "\"\n": "true", "AssignedGPUs = \"GPU-1\"\n": "false", "": "error"} {
		slot += "GPUSlotUUID = " + h.value(t, "SLOT_TYPE_101_GPUSlotUUID") + "\n"
		if got := h.evaluate(t, "Name = \"slot1_1@n\"\n"+slot, "RequestGPUs = 1", h.value(t, "DOCKER_VOLUME_DIR_GPUSLOT0_MOUNT_IF")); got != want {
			t.Errorf("docker volume in a slot with %s: %s, want %s", slot, got, want)
		}
	}
	all := h.value(t, "GPUSLOT_VOLUMES")
	if got := h.value(t, "DOCKER_MOUNT_VOLUMES"); len(strings.Fields(all)) != len(n.shared()) || strings.TrimSpace(got) != all {
		t.Errorf("docker volumes %q", got)
	}
	binds := func(slot string) string {
		return h.evaluate(t, "Name = \"slot1_1@n\"\n"+slot, "RequestGPUs = 1", h.value(t, "SINGULARITY_BIND_EXPR"))
	}
	shared := "GPUSlotUUID = \"" + string(first) + "\"\n"
	if got := binds(shared); got != ",/run/gpuslot/mps/"+string(first) {
		t.Errorf("binds on a shared GPU: %q", got)
	}
	if got := binds(""); got != "" {
		t.Errorf("binds on no GPU: %q", got)
	}
	// A site's own, as docs/sites.md says it.
	h.write(t, "config.d/90-site.conf", "SINGULARITY_BIND_EXPR = strcat(\"/cvmfs\", $(GPUSLOT_BIND_EXPR))\nDOCKER_MOUNT_VOLUMES = $(GPUSLOT_VOLUMES) CVMFS\n"+
		"DOCKER_VOLUME_DIR_CVMFS = /cvmfs\nSTARTER_JOB_ENVIRONMENT = \"APPTAINER_BIND=/cvmfs B='x y'\"\n")
	if got := binds(shared); got != "/cvmfs,/run/gpuslot/mps/"+string(first) {
		t.Errorf("with the site's: %q", got)
	}
	if got := h.value(t, "DOCKER_MOUNT_VOLUMES"); got != all+" CVMFS" {
		t.Errorf("docker volumes with the site's: %q", got)
	}
	if got := h.value(t, "GPUSLOT_HOOK_PREPARE_JOB_ARGS"); got != `"APPTAINER_BIND=/cvmfs B='x y'"` {
		t.Errorf("the hook's arguments: %q", got)
	}
}

package condor

import (
	"testing"
)

// HTCondor's own tools read the binds of container jobs as the starter of each slot type does, beside the site's.
func TestRealContainers(t *testing.T) {
	h := realHTCondor(t)
	n := examples()["whole"]
	n.Supervise = false
	h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, n))
	first := n.shared()[0].UUID
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
	h.write(t, "config.d/90-site.conf", "SINGULARITY_BIND_EXPR = strcat(\"/cvmfs\", $(GPUSLOT_BIND_EXPR))\n"+
		"STARTER_JOB_ENVIRONMENT = \"APPTAINER_BIND=/cvmfs B='x y'\"\n")
	if got := binds(shared); got != "/cvmfs,/run/gpuslot/mps/"+string(first) {
		t.Errorf("with the site's: %q", got)
	}
	if got := h.value(t, "GPUSLOT_HOOK_PREPARE_JOB_ARGS"); got != `"APPTAINER_BIND=/cvmfs B='x y'"` {
		t.Errorf("the hook's arguments: %q", got)
	}
}

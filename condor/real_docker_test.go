package condor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// HTCondor's starter offers docker where a docker program answers, and not beside shared GPUs.
func TestRealDocker(t *testing.T) {
	h := realHTCondor(t)
	asked := filepath.Join(h.dir, "asked")
	program := h.write(t, "docker", "#!/bin/sh\necho \"$@\" >>"+asked+"\necho 'Docker version 20.10.24, build 297e128'\n")
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	h.write(t, "config.d/00-site.conf", "DOCKER = "+program+"\nCONDOR_IDS = 0.0\nJAVA =\nDOCKER_PERFORM_TEST = false\nLOG = $(LOCAL_DIR)\nSTARTER_LOG = $(LOCAL_DIR)/StarterLog\n")
	offers := func() string { return h.run(t, "../sbin/condor_starter", "-classad") }
	if ad := offers(); !strings.Contains(ad, "HasDocker = True") {
		t.Fatalf("without gpuslot:\n%s", ad)
	}
	if err := os.Remove(asked); err != nil {
		t.Fatal(err)
	}
	h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, examples()["shared"]))
	if ad := offers(); strings.Contains(ad, "HasDocker") {
		t.Errorf("beside shared GPUs:\n%s", ad)
	}
	if said, err := os.ReadFile(asked); err == nil {
		t.Errorf("docker was started: %s", said)
	}
}

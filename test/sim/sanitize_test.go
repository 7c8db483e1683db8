package sim

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// underSanitizers are the tests of NVML and MIG that this file runs again;
// those of CUDA and of the monitoring calls have a leg of their own.
const underSanitizers = "^(TestManageMIG|TestMIGMode|TestRace|TestProfiles|TestComputeInstanceProfiles|TestNvidiaSMI.*|TestStateAfterFork|TestProcessesEnd)$"

// TestUnderSanitizers runs the same clients against libraries built with
// AddressSanitizer and UndefinedBehaviorSanitizer, which end a process at the
// first finding.
func TestUnderSanitizers(t *testing.T) {
	if sanitized() {
		return // the whole run is
	}
	Dir(t) // skips without gcc
	ctx, cancel := context.WithTimeout(t.Context(), 2*commandLimit)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, "-test.run", underSanitizers, "-test.v")
	cmd.Env = append(os.Environ(), "GPUSLOT_SIM_SANITIZE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestStateAfterFork") {
		t.Errorf("%v\n%s", err, out)
	}
}

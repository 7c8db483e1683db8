package sim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*commandLimit)
	defer cancel()
	self, err := os.Executable()
	if raceDetector {
		self, err = withoutDetector(ctx, filepath.Join(t.TempDir(), "sim.test"))
	}
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

// withoutDetector builds this test binary once more.
func withoutDetector(ctx context.Context, binary string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "github.com/gpuslot/gpuslot/test/sim")
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests without the race detector: %w\n%s", err, out)
	}
	return binary, nil
}

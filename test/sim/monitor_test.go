package sim

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// checkLimit bounds one check: milliseconds are usual, a loaded machine under
// the sanitizers takes seconds.
const checkLimit = 2 * time.Minute

// needsRoot is the exit code of a check that only root can run.
const needsRoot = 77

// TestMonitoring runs the checks of check/: what the monitoring calls of the
// simulated NVML must do, each with where that is known from. A check changes
// the state by its own hand between the calls: processes come and die, clocks
// jump, memory breaks.
func TestMonitoring(t *testing.T) {
	program := filepath.Join(Dir(t), "bin/simcheck")
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, evidence, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || evidence == "" {
			t.Errorf("%q names no evidence", name)
		}
		t.Run(name, func(t *testing.T) { runCheck(t, program, name, evidence) })
	}
}

func runCheck(t *testing.T, program, name, evidence string) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, name)
	cmd.Env = append(os.Environ(), "GPUSLOT_SIM_STATE="+filepath.Join(t.TempDir(), "state"))
	// Its workers are children of its own: all of the group goes with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == needsRoot:
		t.Skip("needs root: MIG, modes and other accounts are root's")
	case err != nil:
		t.Errorf("%v; known from: %s\n%s", err, evidence, out)
	}
}

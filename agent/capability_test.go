package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// probed is an agent whose control program is a file of the test, and whose
// probes answer what the test says.
func probed(t *testing.T, answer func() (mps.Capabilities, error)) (ta *testAgent, program string, probes *int) {
	t.Helper()
	ta = bareTestAgent(t, 1, "")
	program = filepath.Join(ta.dir, "control")
	writeProgram(t, program, "1")
	text := ta.read(filepath.Join(ta.dir, "gpuslot.toml"))
	text = strings.Replace(text, "[paths]\n", "[paths]\ncontrol_daemon = \""+program+"\"\n", 1)
	if err := os.WriteFile(filepath.Join(ta.dir, "gpuslot.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ta.restart()
	probes = new(int)
	ta.prober.Probe = func(_ context.Context, p string, _ gpu.UUID) (mps.Capabilities, error) {
		if *probes++; p != program {
			t.Errorf("probed %s", p)
		}
		return answer()
	}
	ta.view.Store(&view{config: ta.view.Load().config, next: ta.view.Load().next})
	ta.apply(true)
	return ta, program, probes
}

func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// What is not known is claimed nowhere, and no wall rests on it.
func TestUnknownCapabilities(t *testing.T) {
	err := errors.New("the program is not there: install it")
	ta, _, probes := probed(t, func() (mps.Capabilities, error) { return mps.Capabilities{}, err })
	s := ta.status()
	if s.GPUs[0].EnforcedBy != jobs.EnforcedByNone {
		t.Errorf("wall %s rests on nothing", s.GPUs[0].EnforcedBy)
	}
	if want := []string{"What the control daemon can do is not known, so no budget counts as held by it: the program is not there: install it."}; !cmp.Equal(s.MissingEnforcement, want) {
		t.Errorf("walls: %q", s.MissingEnforcement)
	}
	if want := []api.Capability{{Name: "cgroup-limits", How: "NVML is not in use"}}; !cmp.Equal(s.MPS, want) {
		t.Errorf("capabilities: %+v", s.MPS)
	}
	if got := ta.reader.Take(time.Now()).Can.Known(); len(got) != 0 {
		t.Errorf("metrics: %v", got)
	}
	if text := ta.read(ta.view.Load().config.Paths.CondorConfig()); strings.Contains(text, "GPUSlotMPS") {
		t.Error("the ads claim capabilities")
	}
	for range 4 {
		ta.apply(false)
	}
	if *probes != 2 {
		t.Errorf("%d probes: a failed one is repeated, but not in every round", *probes)
	}
}

// What driver 535, 550 and none of the newer things lead to.
func TestKnownCapabilities(t *testing.T) {
	can := driver550()
	ta, _, _ := probed(t, func() (mps.Capabilities, error) { return can, nil })
	s := ta.status()
	var starts []string
	for _, w := range s.MissingEnforcement {
		starts = append(starts, strings.Join(strings.Fields(w)[:4], " "))
	}
	if want := []string{"An MPS server serves", "No multiprocessors can be"}; !cmp.Equal(starts, want) {
		t.Errorf("missing walls: %q", s.MissingEnforcement)
	}
	if text := ta.read(ta.view.Load().config.Paths.CondorConfig()); !strings.Contains(text, `GPUSlotMPS = "server-status, privilege-checks, pid-file"`+"\n") ||
		!regexp.MustCompile(`(?m)^SYSTEM_STARTD_ATTRS = .* GPUSlotMPS( |$)`).MatchString(text) {
		t.Errorf("the ads do not say what there is:\n%s", text)
	}
	if got := ta.reader.Take(time.Now()).Can.Known(); !got["server-status"] || got["multi-user"] || len(got) != 6 {
		t.Errorf("metrics: %v", got)
	}
}

// No wall of the daemon where any account may change its limits (driver 535).
func TestNoPrivilegeChecksNoDaemonWall(t *testing.T) {
	can := driver550()
	ta, _, _ := probed(t, func() (mps.Capabilities, error) { return can, nil })
	grant := ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 32256)
	if grant.EnforcedBy != jobs.EnforcedByDaemon {
		t.Fatalf("wall %s with privilege checks", grant.EnforcedBy)
	}
	can.PrivilegeChecks = mps.Answer{Known: true}
	ta, _, _ = probed(t, func() (mps.Capabilities, error) { return can, nil })
	if grant = ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 32256); grant.EnforcedBy != jobs.EnforcedByNone {
		t.Errorf("wall %s without privilege checks", grant.EnforcedBy)
	}
}

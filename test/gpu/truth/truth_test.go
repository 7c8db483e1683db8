package truth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/gpu/programs"
	"github.com/gpuslot/gpuslot/test/sim"
)

// simulated is a lab on a simulated GPU.
func simulated(t *testing.T, driver string) *Lab {
	t.Helper()
	n := sim.New(t, driver, "H100-80")
	dir, err := os.MkdirTemp("/tmp", "t") // a pipe directory has 87 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := programs.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	// The cache of builds is not every account's to read.
	for _, part := range []string{"lib", "bin"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(n.Dir, part))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GPUSLOT_SIM_STATE", n.State)
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(dir, "lib"))
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	// Where gpuslot tries what a control program can do, it gives it an environment of its own.
	control := filepath.Join(dir, "control")
	script := fmt.Sprintf("#!/bin/sh\nGPUSLOT_SIM_STATE=%s exec %s/bin/nvidia-cuda-mps-control \"$@\"\n", n.State, dir)
	if err := os.WriteFile(control, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "gpujob"), "devices").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(out), `"uuid":"`)
	uuid, _, _ := strings.Cut(after, `"`)
	return &Lab{GPU: gpu.UUID("GPU-" + uuid), Name: "H100-80", Driver: driver, Simulated: true, Programs: dir, Control: control, Dir: dir}
}

// otherwise are the claims that do not hold on the simulated node, and why.
var otherwise = map[string]Verdict{
	"cuMemAllocAsync beyond the limit fails.":                              Unknown, // not simulated, as the next ones
	"cuMemCreate beyond the limit fails.":                                  Unknown,
	"Another client's memory is not imported beyond one's own limit.":      Unknown,
	"A process without MPS has the device node of its GPU open or mapped.": Unknown,
	"An MPS client has the device node of its GPU open or mapped.":         Unknown,

	"A client in a PID namespace of its own with its own /proc attaches and is limited, if the daemon is in the host's.": Unknown,
}

// slow are the trials that wait for something not to happen, or start many
// clients: make campaign tries them as well.
var slow = []string{"T4", "T5", "T13", "T15", "T17"}

// usual are the trials of this run.
func usual() []Trial {
	all := Trials()
	if os.Getenv("GPUSLOT_CAMPAIGN") != "" {
		return all
	}
	return slices.DeleteFunc(all, func(t Trial) bool { return slices.Contains(slow, t.ID) })
}

// TestSimulated makes the trials on the simulated node, with the driver that was measured
// on a GPU: the harness works as a whole, finds what the simulation is known to do, and
// leaves nothing.
func TestSimulated(t *testing.T) {
	l, dir, trials := simulated(t, "580.159.04"), t.TempDir(), usual()
	tried := 0
	err := Run(t.Context(), l, trials, dir, func(o Outcome) {
		tried++
		t.Logf("%s %.1f", o.ID, o.Seconds)
		if o.Err != "" {
			t.Errorf("%s ended early: %s", o.ID, o.Err)
		}
		for _, f := range o.Findings {
			want, listed := otherwise[f.Claim]
			if !listed {
				want = Holds
			}
			if o.NotDone != "" {
				want = Unknown
			}
			if f.Verdict != want {
				t.Errorf("%s: %q %s, not %s: %v", o.ID, f.Claim, f.Verdict, want, o.Values)
			}
		}
		if o.NotDone == "" && (len(o.Values) == 0 || len(o.Records) == 0) {
			t.Errorf("%s recorded nothing", o.ID)
		}
	})
	if err != nil || tried != len(trials) {
		t.Fatalf("%d trials, %v", tried, err)
	}
	left(t)
	readAgain(t, dir)
}

// readAgain: what was recorded is judged as it was, and the page says that it is
// simulated.
func readAgain(t *testing.T, dir string) {
	t.Helper()
	outcomes, err := Read(dir, Trials())
	if err != nil || len(outcomes) != len(usual()) {
		t.Fatalf("%d outcomes, %v", len(outcomes), err)
	}
	var page strings.Builder
	if err := Summary(&page, "What holds", outcomes); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**SIMULATED", "| holds | A default limit by ordinal binds. |", "| default_index_readback | 2G |", "Not done: there is no second driver library."} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// left fails if a process lives on this test's node.
func left(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains(string(env), "GPUSLOT_SIM_STATE="+os.Getenv("GPUSLOT_SIM_STATE")) {
			name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			t.Errorf("process %s is left: %s", e.Name(), name)
		}
	}
}

// TestNoMultiUser: driver 550 lacks the mode, and nothing is learnt of it.
func TestNoMultiUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it needs root: other accounts")
	}
	l := simulated(t, "550.163.01")
	for _, trial := range Trials() {
		if trial.ID != "T13b" {
			continue
		}
		o := l.try(t.Context(), trial)
		for _, f := range o.Findings {
			if f.Verdict != Unknown || o.Err != "" {
				t.Errorf("%q %s: %v %s", f.Claim, f.Verdict, o.Values, o.Err)
			}
		}
	}
}

// TestOlderDriver: what was measured on 580 is not claimed of an older simulated driver.
func TestOlderDriver(t *testing.T) {
	l := simulated(t, "550.163.01")
	for _, trial := range Trials() {
		if trial.ID != "T7" {
			continue
		}
		o := l.try(t.Context(), trial)
		i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Claim == "Managed memory beyond the limit fails." })
		if i < 0 || o.Findings[i].Verdict != Differs {
			t.Errorf("%v %v %s", o.Findings, o.Values, o.Err)
		}
	}
}

// TestNoServer: where no server comes up, it is said once, with the log.
func TestNoServer(t *testing.T) {
	l := simulated(t, "550.163.01")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nvidia-cuda-mps-server"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	trials := slices.DeleteFunc(Trials(), func(t Trial) bool { return !slices.Contains([]string{"T0", "T2", "T18"}, t.ID) })
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	trials[0].Limit = 2 * time.Second
	became := map[string]Outcome{}
	if err := Run(ctx, l, trials, t.TempDir(), func(o Outcome) { became[o.ID] = o }); err != nil {
		t.Fatal(err)
	}
	first := became["T0"]
	logged := slices.ContainsFunc(first.Records, func(r Record) bool { return strings.Contains(r.Said, "exited with status 1") })
	if first.Findings[0].Verdict != Differs || !strings.Contains(first.Err, "no MPS server came up") || !logged {
		t.Errorf("%s: %v", first.Err, first.Records)
	}
	if !strings.Contains(became["T2"].NotDone, "see T0") || became["T18"].NotDone != "" || len(became["T18"].Values) == 0 {
		t.Errorf("%q %q", became["T2"].NotDone, became["T18"].NotDone)
	}
}

// TestEndsEarly: a trial that breaks off leaves nothing, and says why.
func TestEndsEarly(t *testing.T) {
	l := simulated(t, "550.163.01")
	o := l.try(t.Context(), Trial{ID: "T0", Try: func(ctx context.Context, l *Lab, n *Notes) error {
		d, err := l.Daemon(ctx, n)
		if err != nil {
			return err
		}
		_, _, err = l.crowd(ctx, n, d, "a", "b")
		if err != nil {
			return err
		}
		return errors.New("broken off")
	}})
	if o.Err != "broken off" {
		t.Errorf("it says %q", o.Err)
	}
	left(t)
}

// TestOneTrialAlone: whatever becomes of a trial, others are made. What there was
// no time for is named.
func TestOneTrialAlone(t *testing.T) {
	var values []int // as of a line that a driver does not write
	ctx, end := context.WithCancelCause(t.Context())
	over := errors.New("the time was over")
	trials := []Trial{
		{ID: "A", Try: func(context.Context, *Lab, *Notes) error { return fmt.Errorf("never: %d", values[0]) }},
		{ID: "B", Try: func(_ context.Context, _ *Lab, n *Notes) error { n.Set("made", true); end(over); return nil }},
		{ID: "C"}, {ID: "D"},
	}
	dir := t.TempDir()
	err := Run(ctx, &Lab{Control: "nvidia-cuda-mps-control"}, trials, dir, func(Outcome) {})
	if !errors.Is(err, over) || !strings.Contains(err.Error(), "-only C,D") {
		t.Errorf("it says %v", err)
	}
	made, err := Read(dir, trials)
	if err != nil || len(made) != 2 || !strings.Contains(made[0].Err, "index out of range") || !made[1].Values.True("made") {
		t.Errorf("%+v %v", made, err)
	}
}

// TestStepsAlone: a step finds nothing left of the one before, which may have failed.
func TestStepsAlone(t *testing.T) {
	l := simulated(t, "550.163.01")
	notes, made := newNotes(), 0
	one := func() error {
		made++
		d, err := l.Daemon(t.Context(), notes)
		if err != nil || len(l.daemons) != 1 {
			t.Fatalf("%d daemons, %v", len(l.daemons), err)
		}
		if _, _, err := l.crowd(t.Context(), notes, d, "a"); err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("trouble %d", made)
	}
	err := l.each(t.Context(), []step{{"one", one}, {"other", one}})
	if made != 2 || err == nil || err.Error() != "one: trouble 1\nother: trouble 2" {
		t.Errorf("%d made, %v", made, err)
	}
	left(t)
}

// TestNotEnded: a process that does not end is named and not waited for.
func TestNotEnded(t *testing.T) {
	in, out := io.Pipe()
	defer in.Close()
	j := &Job{name: "stuck", cmd: exec.Command("true"), in: out, ended: make(chan struct{})}
	if err := j.cmd.Run(); err != nil {
		t.Fatal(err)
	}
	err := endAll([]*Job{j}, time.Millisecond, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "of job stuck survives SIGKILL") {
		t.Errorf("it says %v", err)
	}
}

func TestJudge(t *testing.T) {
	claims := []Claim{{"Small.", []string{"a", "b"}, func(v Values) bool { return v.Number("a") < 10 && v.True("b") }}}
	for want, v := range map[Verdict]Values{
		Holds: {"a": 9, "b": true}, Differs: {"a": 10.0, "b": true}, Unknown: {"a": 9},
	} {
		if got := Judge(claims, v)[0].Verdict; got != want {
			t.Errorf("%v %s, not %s", v, got, want)
		}
	}
}

// TestClaimsNeedTheirValues: without one of the values that it is about, no
// claim holds.
func TestClaimsNeedTheirValues(t *testing.T) {
	for _, trial := range Trials() {
		if trial.NotDone == "" && trial.Try == nil {
			t.Errorf("%s does nothing", trial.ID)
		}
		for _, c := range trial.Claims {
			if len(c.Needs) == 0 {
				t.Errorf("%s: %q is about nothing", trial.ID, c.Text)
			}
			if got := Judge([]Claim{c}, Values{})[0].Verdict; got != Unknown {
				t.Errorf("%s: %q %s without a value", trial.ID, c.Text, got)
			}
		}
	}
}

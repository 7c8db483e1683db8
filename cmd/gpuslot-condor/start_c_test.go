package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// startVerbs are the verbs that gpuslot-start has.
var startVerbs = []string{"prepare", "supervise"}

// TestStartScripts: gpuslot-start does what gpuslot-condor does. The scripts are the same.
func TestStartScripts(t *testing.T) {
	programs := buildStart(t)
	condor, err := exec.LookPath("gpuslot-condor")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(condor, filepath.Join(programs, "gpuslot-condor")); err != nil {
		t.Fatal(err)
	}
	runWithStart(t, programs, "*")
}

// TestStartAlone: most jobs need gpuslot-start alone.
func TestStartAlone(t *testing.T) {
	programs := buildStart(t)
	for _, script := range []string{"prepare", "prepare-both", "prepare-refused", "prepare-undecided", "prepare-words", "supervise-hold",
		"supervise-shared", "supervise-site", "supervise-start"} {
		t.Run(script, func(t *testing.T) { runWithStart(t, programs, script) })
	}
}

// TestStartLongReply: a reply that is too long is called so.
func TestStartLongReply(t *testing.T) {
	programs := buildStart(t)
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64))
			_, _ = c.Write(bytes.Repeat([]byte("x"), 1<<17))
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-served }()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "gpuslot-start"), "supervise", "-socket", socket, "true")
	cmd.Env = append(os.Environ(), "_CONDOR_AssignedGPUs=GPU-a", "ASAN_OPTIONS=detect_leaks=0")
	out, err := cmd.CombinedOutput()
	if want := syscall.EMSGSIZE.Error(); err != nil || !strings.Contains(strings.ToLower(string(out)), want) {
		t.Errorf("%v: %s, want %q", err, out, want)
	}
}

// runWithStart runs scripts with gpuslot-start in the place of gpuslot-condor, for its verbs.
func runWithStart(t *testing.T, programs, names string) {
	dir := t.TempDir()
	scripts, err := filepath.Glob("testdata/" + names + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		for _, verb := range startVerbs {
			changed = strings.ReplaceAll(changed, "gpuslot-condor "+verb, "gpuslot-start "+verb)
		}
		if changed == string(text) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := scriptParams()
	p.Dir = dir
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("PATH", programs+string(filepath.ListSeparator)+e.Getenv("PATH"))
		e.Setenv("ASAN_OPTIONS", "detect_leaks=0")
		return setup(e)
	}
	testscript.Run(t, p)
}

// TestPassOn: both supervisors pass the controllers of VRAM limits on to the job's cgroup, before they ask for its
// start. They write nothing where there are none, and in no cgroup that HTCondor did not make for the job.
func TestPassOn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	programs := buildStart(t)
	condor, err := exec.LookPath("gpuslot-condor")
	if err != nil {
		t.Fatal(err)
	}
	const job = "/htcondor/_x_slot1_1@wn1"
	for name, c := range map[string]struct{ own, has, want string }{
		"both":             {job + ".slice/_x_slot1_1@wn1.scope", "cpu dmem memory misc", "+dmem+misc"},
		"one":              {job + ".slice/_x_slot1_1@wn1.scope", "cpuset cpu misc pids", "+misc"},
		"names alike":      {job + ".slice/_x_slot1_1@wn1.scope", "xdmem dmemx misc2", ""},
		"none":             {job + ".slice/_x_slot1_1@wn1.scope", "", ""},
		"another scope":    {job + ".slice/_x_slot1_2@wn1.scope", "dmem", ""},
		"below the scope":  {job + ".slice/_x_slot1_1@wn1.scope/mine", "dmem", ""},
		"up to 24.7":       {"/htcondor/condor_x_slot1_1@wn1", "dmem", ""},
		"a service":        {"/system.slice/condor.service", "dmem", ""},
		"a slice in slice": {job + ".slice/_x_slot1_1@wn1.slice", "dmem", ""},
		"short":            {"/.slice/.scope", "dmem", ""},
		"the root":         {"/", "dmem", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			above := filepath.Join(dir, "cgroups", filepath.Dir(c.own))
			file := filepath.Join(above, "cgroup.subtree_control")
			socket := filepath.Join(dir, "r", "agent.sock")
			for _, err := range []error{
				os.MkdirAll(filepath.Join(dir, "cgroups", c.own), 0o755), os.MkdirAll(filepath.Join(dir, "r", "condor"), 0o755),
				os.WriteFile(filepath.Join(above, "cgroup.controllers"), []byte(c.has+"\n"), 0o644),
				os.WriteFile(filepath.Join(dir, "own-cgroup"), []byte("1:name=x:/y\n0::"+c.own+"\n"), 0o644),
				os.Symlink("asked", filepath.Join(dir, "r", "condor", "start")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			// Without an agent gpuslot-start becomes gpuslot-condor, which is not in its directory.
			for _, program := range []string{condor, filepath.Join(programs, "gpuslot-start")} {
				for gpus, want := range map[string]string{"GPU-1": c.want, "10000": ""} {
					if err := os.WriteFile(file, nil, 0o644); err != nil {
						t.Fatal(err)
					}
					cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-ec", "mount --bind cgroups /sys/fs/cgroup\n"+
						"mount --bind own-cgroup /proc/$$/cgroup\nexec \"$@\"", "sh", program, "supervise", "-socket", socket, "true")
					cmd.Dir, cmd.Env = dir, append(os.Environ(), "_CONDOR_AssignedGPUs="+gpus, "ASAN_OPTIONS=detect_leaks=0")
					out, _ := cmd.CombinedOutput()
					if got, err := os.ReadFile(file); err != nil || string(got) != want || len(out) == 0 {
						t.Errorf("%s with the GPU %s wrote %q, %v, want %q: %s", filepath.Base(program), gpus, got, err, want, out)
					}
				}
			}
		})
	}
}

// buildStart compiles gpuslot-start into a directory, and returns that.
func buildStart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sources, err := filepath.Glob("../gpuslot-start/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources of gpuslot-start: %v", err)
	}
	args := []string{"-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror",
		"-o", filepath.Join(dir, "gpuslot-start")}
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return dir
}

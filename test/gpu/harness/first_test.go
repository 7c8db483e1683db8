package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/gpu/evidence"
)

// rehearsal is a tenth of all times: a call of 570 s then takes one minute.
const rehearsal = "0.1"

// first runs first.sh with a folder, with its output.
func first(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(dir, "first.sh")}, args...)...).CombinedOutput()
	return string(out), err
}

// progress is what is read of first.json.
type progress struct {
	Calls  int      `json:"calls"`
	Doubts []string `json:"doubts"`
	Parts  []struct{ Name, State, Error string }
}

// packed reads results.tgz: the names of its files, and how far the parts came.
func packed(t *testing.T, out string) (names []string, p progress) {
	t.Helper()
	f, err := os.Open(filepath.Join(out, "results.tgz"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, p
		}
		if err != nil {
			t.Fatalf("results.tgz is not whole: %v", err)
		}
		names = append(names, h.Name)
		if h.Name == "first.json" {
			if err := json.NewDecoder(r).Decode(&p); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (p progress) state(name string) string {
	for _, part := range p.Parts {
		if part.Name == name {
			return part.State
		}
	}
	return ""
}

// kept: what was there is there.
func kept(t *testing.T, before, after []string) {
	t.Helper()
	for _, name := range before {
		if !slices.Contains(after, name) {
			t.Errorf("%s is lost", name)
		}
	}
}

func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// testFirst rehearses a first day on a machine with a GPU.
func testFirst(t *testing.T, dir string) {
	t.Run("no GPU", func(t *testing.T) { testNoGPU(t, dir) })
	t.Run("no MPS", func(t *testing.T) { testNoMPS(t, dir) })
	t.Run("three calls", func(t *testing.T) { testCalls(t, dir) })
	t.Run("a cut", func(t *testing.T) { testCut(t, dir) })
}

func testNoGPU(t *testing.T, dir string) {
	if (evidence.Host{Device: evidence.Device}).Loaded() {
		t.Skip("this machine has a GPU")
	}
	t.Setenv("LD_LIBRARY_PATH", "")
	t.Setenv("GPUSLOT_SIM_STATE", "")
	began := time.Now()
	text, err := first(t, dir, "--raw", filepath.Join(t.TempDir(), "raw"), t.TempDir())
	t.Logf("it took %.1f s", time.Since(began).Seconds())
	if err == nil || !strings.Contains(last(text), "this machine has no GPU to try") {
		t.Errorf("%v\n%s", err, text)
	}
}

// testNoMPS: what needs no MPS runs, and the rest is said at once.
func testNoMPS(t *testing.T, dir string) {
	open, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	bin := t.TempDir()
	for _, name := range []string{"simgpu", "simjob"} {
		if err := os.Symlink(filepath.Join(open, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+strings.TrimPrefix(os.Getenv("PATH"), open))
	out := t.TempDir()
	text, err := first(t, dir, "--scale", rehearsal, "--deadline", "400s", "--raw", filepath.Join(t.TempDir(), "raw"), out)
	if err != nil || !strings.Contains(text, "There is no nvidia-cuda-mps-control on this machine") {
		t.Fatalf("%v\n%s", err, text)
	}
	names, p := packed(t, out)
	for _, name := range []string{"dialect", "limits", "product"} {
		if p.state(name) != "impossible" {
			t.Errorf("%s is %q", name, p.state(name))
		}
	}
	if p.state("facts") != "finished" || p.state("memory-listed") != "finished" || !slices.Contains(names, "truth/B1.json") {
		t.Errorf("%+v\n%s", p, text)
	}
}

// testCalls: three calls with the deadlines of 60, 200 and 570 s, a tenth each, of
// a folder that may not be written to.
func testCalls(t *testing.T, dir string) {
	before := listed(t, dir)
	out, raw := t.TempDir(), filepath.Join(t.TempDir(), "raw")
	var names []string
	for i, deadline := range []string{"60s", "200s", "570s"} {
		args := []string{"--scale", rehearsal, "--deadline", deadline, "--raw", raw, out}
		if i > 0 {
			args = append([]string{"--rest"}, args...)
		}
		text, err := first(t, dir, args...)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		t.Log(last(text))
		if !strings.HasPrefix(last(text), "REHEARSAL with all limits times 0.1; SIMULATED; ran: ") || !strings.Contains(last(text), "; left: ") {
			t.Errorf("the last line is %q", last(text))
		}
		now, p := packed(t, out)
		kept(t, names, now)
		if names = now; p.Calls != i+1 || len(p.Doubts) == 0 {
			t.Errorf("call %d, doubts %q", p.Calls, p.Doubts)
		}
		inOrder(t, p)
	}
	if after := listed(t, dir); after != before {
		t.Errorf("the folder was\n%s\nand is\n%s", before, after)
	}
	for name, marked := range map[string]string{"truth/T1.json": `"simulated": true`, "driver.json": "is a simulated one"} {
		if b, err := os.ReadFile(filepath.Join(raw, name)); err != nil || !strings.Contains(string(b), marked) {
			t.Errorf("%s: %v, not marked as simulated", name, err)
		}
	}
	testHome(t, dir, out)
}

// inOrder: no part was begun before one that is worth more, but for those that
// cannot be made.
func inOrder(t *testing.T, p progress) {
	t.Helper()
	waiting := ""
	for _, part := range p.Parts {
		switch {
		case part.State == "":
			waiting = part.Name
		case waiting != "" && part.State != "impossible":
			t.Errorf("%s was begun before %s", part.Name, waiting)
		}
	}
}

// testHome: a page comes of it, and not among the results of hardware.
func testHome(t *testing.T, dir, out string) {
	t.Helper()
	results, pages := filepath.Join(out, "results.tgz"), t.TempDir()
	text, err := exec.CommandContext(t.Context(), filepath.Join(dir, "first"), "-home", results, "-into", filepath.Join(pages, "docs/hardware")).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "they do not belong in docs/hardware") {
		t.Errorf("%v: %s", err, text)
	}
	if text, err = exec.CommandContext(t.Context(), filepath.Join(dir, "first"), "-home", results, "-into", pages).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	page, err := os.ReadFile(strings.TrimSpace(string(text)))
	if err != nil || !strings.Contains(string(page), "**SIMULATED: these are no results of hardware.**") || !strings.Contains(string(page), "| [T1](truth/T1.json) |") {
		t.Errorf("%v\n%s", err, page)
	}
}

// testCut: a call is killed in the middle, without /dev/shm and cgroups to write
// to. What it had is in OUT, and a call on another machine goes on from there.
func testCut(t *testing.T, dir string) {
	if os.Getuid() != 0 {
		t.Skip("it needs root: mounts of its own")
	}
	out := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir()) // the killed call leaves its copy of the folder
	const bare = `mount -t tmpfs -o ro tmpfs /dev/shm; mount -t tmpfs -o ro tmpfs /sys/fs/cgroup; exec "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", bare, "sh",
		"bash", filepath.Join(dir, "first.sh"), "--scale", rehearsal, "--raw", filepath.Join(t.TempDir(), "raw"), out)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for end := time.Now().Add(3 * time.Minute); !slices.Contains(names, "truth/T1.json"); time.Sleep(10 * time.Millisecond) {
		if names, _ = packed(t, out); time.Now().After(end) {
			t.Fatalf("a call under way has packed %v", names)
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	names, p := packed(t, out)
	if p.state("facts") != "finished" {
		t.Errorf("%+v", p)
	}
	text, err := first(t, dir, "--rest", "--scale", rehearsal, "--deadline", "300s", "--raw", filepath.Join(t.TempDir(), "raw"), out)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	after, p := packed(t, out)
	kept(t, names, after)
	if p.Calls != 2 || p.state("limits") == "running" || strings.Contains(text, "dialect: the control program") {
		t.Errorf("%+v\n%s", p, text)
	}
	if left := marked(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// marked are processes of any call on this test's node.
func marked(t *testing.T) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(env), "GPUSLOT_FIRST=") && strings.Contains(string(env), "GPUSLOT_SIM_STATE="+os.Getenv("GPUSLOT_SIM_STATE")) {
			pids = append(pids, f)
		}
	}
	return pids
}

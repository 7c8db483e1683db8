package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
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
	t.Run("cuts", func(t *testing.T) { testCuts(t, dir, 0.1, 300*time.Second) })
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
	for _, name := range []string{"facts", "memory-listed", "sharing-mix"} {
		if state := p.state(name); state != "finished" && state != "cut off" { // a slow machine needs longer than a tenth
			t.Errorf("%s is %q\n%+v\n%s", name, state, p, text)
		}
	}
	if p.state("memory-listed") == "finished" && !slices.Contains(names, "truth/B1.json") {
		t.Errorf("%q\n%s", names, text)
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

// bare is what a command finds in mounts of its own: 16 CPUs, no /dev/shm and no
// cgroups to write to.
const bare = `mount -t tmpfs -o ro tmpfs /dev/shm && mount -t tmpfs -o ro tmpfs /sys/fs/cgroup &&
	mount --bind "$CPUS" /sys/devices/system/cpu/online && exec "$@"`

// there is first.sh on such a machine.
func there(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cpus := filepath.Join(t.TempDir(), "online")
	if err := os.WriteFile(cpus, []byte("0-15\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := []string{"--mount", "--propagation", "private", "sh", "-c", bare, "sh"}
	command = append(command, "bash", filepath.Join(dir, "first.sh"))
	cmd := exec.CommandContext(t.Context(), "unshare", append(command, args...)...)
	cmd.Env = append(os.Environ(), "CPUS="+cpus, "GOMAXPROCS=16")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// testCuts: two calls are killed, after 60 and 200 s, and a third one has the time
// last, all of it times scale. Each is on another machine than the one before: it has
// nothing but OUT. The folder is not written to.
func testCuts(t *testing.T, dir string, scale float64, last time.Duration) {
	if os.Getuid() != 0 {
		t.Skip("it needs root: mounts of its own")
	}
	t.Setenv("TMPDIR", t.TempDir()) // a killed call leaves its copy of the folder
	before, out := listed(t, dir), t.TempDir()
	var names []string
	for i, after := range []time.Duration{60 * time.Second, 200 * time.Second} {
		args := []string{"--scale", fmt.Sprint(scale), "--raw", filepath.Join(t.TempDir(), "raw"), out}
		if i > 0 {
			args = append([]string{"--rest"}, args...)
		}
		now := testKilled(t, there(t, dir, args...), out, time.Duration(float64(after)*scale))
		kept(t, names, now)
		names = now
	}
	raw := filepath.Join(t.TempDir(), "raw")
	cmd := there(t, dir, "--rest", "--scale", fmt.Sprint(scale), "--deadline", last.String(), "--raw", raw, out)
	began := time.Now()
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Logf("%.0f s\n%s", time.Since(began).Seconds(), text)
	now, p := packed(t, out)
	kept(t, names, now)
	inOrder(t, p)
	// A machine that is slow may cut it, or not come to it; that it fails would be a defect.
	again := strings.Contains(string(text), "\nlimits: ")
	if p.Calls != 3 || p.state("facts") != "finished" || p.state("dialect") == "failed" ||
		again && p.state("limits") == "running" {
		t.Errorf("%+v\n%s", p, text)
	}
	if listed(t, dir) != before {
		t.Errorf("the folder was\n%s\nand is\n%s", before, listed(t, dir))
	}
	if left := marked(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	inv := exec.CommandContext(t.Context(), "tar", "-xzOf", filepath.Join(out, "results.tgz"), "inventory.json")
	if text, err := inv.Output(); err != nil || !strings.Contains(string(text), `"cpus": 16`) {
		t.Errorf("no 16 CPUs: %v\n%s", err, text)
	}
}

// testKilled kills a call after a time, and gives what it had packed by then: the
// machine's facts, and all files but those of the last seconds.
func testKilled(t *testing.T, cmd *exec.Cmd, out string, after time.Duration) []string {
	t.Helper()
	cmd.Stderr = os.Stderr
	began := time.Now()
	_, was := packed(t, out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := began.Add(3*time.Minute + after); ; time.Sleep(10 * time.Millisecond) {
		_, p := packed(t, out)
		if p.Calls > was.Calls && p.state("facts") == "finished" && time.Since(began) >= after {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a call under way has packed %+v", p)
		}
	}
	killed := time.Now()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	names, p := packed(t, out)
	t.Logf("killed after %.0f s with %d files: %+v", killed.Sub(began).Seconds(), len(names), p)
	raw := cmd.Args[slices.Index(cmd.Args, "--raw")+1]
	err := filepath.WalkDir(raw, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Ext(path) == ".new" {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		const packs = 15*time.Second + 10*time.Second // how often, and some for a slow machine
		if name, _ := filepath.Rel(raw, path); killed.Sub(st.ModTime()) > packs && !slices.Contains(names, name) {
			t.Errorf("%s of %v before the end is not packed", name, killed.Sub(st.ModTime()))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return names
}

// TestFullLength is the first day with its real times, on a node that takes as long as
// a driver for servers and contexts: make campaign has a quarter of an hour for it.
func TestFullLength(t *testing.T) {
	if os.Getenv("GPUSLOT_CAMPAIGN") == "" {
		t.Skip("takes a quarter of an hour: make campaign")
	}
	t.Setenv("GPUSLOT_SIM_MPS_START_MS", "1500")
	t.Setenv("GPUSLOT_SIM_CONTEXT_MS", "400")
	testCuts(t, bundled(t), 1, 570*time.Second)
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

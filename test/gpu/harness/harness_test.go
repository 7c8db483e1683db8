package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/gpu/programs"
	"github.com/gpuslot/gpuslot/test/gpu/report"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
	"github.com/gpuslot/gpuslot/test/sim"
)

// bundled is the folder of programs, on a simulated GPU.
func bundled(t *testing.T) string {
	t.Helper()
	n, dir := sim.New(t, "580.159.04", "H100-80"), t.TempDir()
	for out, pkg := range map[string]string{"gpuslot": "cmd/gpuslot", "gpuslotd": "cmd/gpuslotd", "gpuslot-condor": "cmd/gpuslot-condor", "condor_starter": "test/faults/starter", "harness": "test/gpu/harness", "first": "test/gpu/first"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, out), "github.com/gpuslot/gpuslot/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	for out, args := range map[string][]string{"mps.test": {"./mps"}, "nvml.test": {"-tags", "gpu", "./gpu/nvml"}} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-c", "-o", filepath.Join(dir, out)}, args...)...)
		cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	if err := programs.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train.py", "run.sh", "first.sh"} {
		text, err := os.ReadFile("../" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// The jobs' account reads neither the cache of builds nor a test's directory.
	open, err := os.MkdirTemp("", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	if err := errors.Join(os.Chmod(open, 0o755), os.CopyFS(filepath.Join(open, "lib"), os.DirFS(filepath.Join(n.Dir, "lib"))),
		os.CopyFS(filepath.Join(open, "bin"), os.DirFS(filepath.Join(n.Dir, "bin")))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPUSLOT_SIM_STATE", n.State)
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(open, "lib"))
	t.Setenv("PATH", filepath.Join(open, "bin")+":"+os.Getenv("PATH"))
	return dir
}

// TestParts makes the parts on the simulated node as they are made on a GPU.
// The programs are built once.
func TestParts(t *testing.T) {
	dir := bundled(t)
	t.Run("sharing", func(t *testing.T) { testSharing(t, dir) })
	t.Run("truth", func(t *testing.T) { testTruth(t, dir) })
	t.Run("node", func(t *testing.T) { testNode(t, dir) })
	t.Run("run.sh", func(t *testing.T) { testScript(t, dir) })
	t.Run("first.sh", func(t *testing.T) { testFirst(t, dir) })
}

// testScript: the folder as a copy that lost its modes, started by "bash run.sh",
// left as it was; and told to end in the middle.
func testScript(t *testing.T, dir string) {
	folder, tmp := t.TempDir(), t.TempDir()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, n.Name()), b, 0o444)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := listed(t, folder)
	t.Setenv("TMPDIR", tmp)
	out := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "bash", filepath.Join(folder, "run.sh"), "truth", out, "-only", "T12").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(folder, "run.sh"), "truth", out, "-only", "T18,T15")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return len(clients(t, tmp)) > 3 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("it ends with %v", err)
	}
	var part report.Part
	b, err := os.ReadFile(filepath.Join(out, "truth.part.json"))
	if err == nil {
		err = json.Unmarshal(b, &part)
	}
	if err != nil || !part.Left || !strings.Contains(part.Error, "-only T15") {
		t.Errorf("%v %+v", err, part)
	}
	for _, name := range []string{"truth/T12.json", "truth/T18.json", "machine.txt"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	if after := listed(t, folder); after != before {
		t.Errorf("the folder was\n%s\nand is\n%s", before, after)
	}
	if left := listed(t, tmp); left != "" || len(clients(t, tmp)) > 0 {
		t.Errorf("left: %s %v", left, clients(t, tmp))
	}
}

// TestSearch: simulated control programs lie in caches and temporary directories, and
// none of them is found.
func TestSearch(t *testing.T) {
	root := t.TempDir()
	const program = "nvidia-cuda-mps-control"
	put := func(dir string) string {
		t.Helper()
		path := filepath.Join(root, dir, program)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o755)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	search := func() string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "bash", "../run.sh", "search", root).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	const dirs = "proc/1/root/bin sys tmp/h1/bin var/tmp/bin root/.cache/gpuslot/sim/bin home/a/.cache/x srv/gpuslot-sim/bin"
	for dir := range strings.FieldsSeq(dirs) {
		put(dir)
	}
	if found := search(); found != "" {
		t.Errorf("it finds %s", found)
	}
	want := put("opt/driver/bin")
	if found := search(); found != want {
		t.Errorf("it finds %q, not %q", found, want)
	}
}

// listed is a directory with its files' modes and sizes.
func listed(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, st.Mode(), st.Size(), e.Name())
	}
	return b.String()
}

// clients are the processes that belong to this test's node and directory.
func clients(t *testing.T, tmp string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains(string(env), "TMPDIR="+tmp) {
			name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			if strings.Contains(string(name), "gpujob") {
				names = append(names, string(name))
			}
		}
	}
	return names
}

func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to that")
		}
	}
}

// testTruth: the trials that are asked for and no other; clients in namespaces
// of their own leave nothing on the GPU either.
func testTruth(t *testing.T, dir string) {
	out := t.TempDir()
	if err := run(t.Context(), []string{"-programs", dir, "-out", out, "-only", "T3,T11", "truth", "report"}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(out, "truth"))
	if err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
	if _, err := os.Stat(filepath.Join(out, "truth.md")); err != nil {
		t.Error(err)
	}
	err = run(t.Context(), []string{"-programs", dir, "-out", out, "-limit", "1ns", "-only", "T3,T18", "truth"})
	if !errors.Is(err, errTime) || !strings.Contains(err.Error(), "-only T3,T18") {
		t.Errorf("without time it says %v", err)
	}
	testBusy(t, dir, out)
}

// testBusy: beside others nothing is tried, and that is written down.
func testBusy(t *testing.T, dir, out string) {
	t.Helper()
	other := exec.CommandContext(t.Context(), "simjob", "alloc", "10", "until", "eof")
	in, errIn := other.StdinPipe()
	said, errOut := other.StdoutPipe()
	if err := errors.Join(errIn, errOut, other.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 64)); err != nil { // it has told what it did
		t.Fatal(err)
	}
	err := run(t.Context(), []string{"-programs", dir, "-out", out, "-only", "T18", "truth"})
	want := fmt.Sprintf("other processes use the GPU: [%d]", other.Process.Pid)
	note, unread := os.ReadFile(filepath.Join(out, "truth.part.json"))
	if err == nil || !strings.Contains(err.Error(), want) || unread != nil || !strings.Contains(string(note), want) {
		t.Errorf("%v\n%s", err, note)
	}
	_ = in.Close()
	_ = other.Wait()
}

// testNode: the whole product with its jobs.
func testNode(t *testing.T, dir string) {
	if os.Getuid() != 0 {
		t.Skip("it needs root: jobs have an account of their own")
	}
	out := t.TempDir()
	if err := run(t.Context(), []string{"-programs", dir, "-out", out, "-measure", "500ms", "node", "report"}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "node.md"))
	if err != nil || !strings.Contains(string(page), "| holds | A fault closes the GPU within 10 s. |") {
		t.Errorf("%v\n%s", err, page)
	}
	files, err := filepath.Glob(filepath.Join(out, "node/N*.json"))
	if err != nil || len(files) != 7 {
		t.Fatalf("%d trials, %v", len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		var o truth.Outcome
		if err == nil {
			err = json.Unmarshal(b, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range o.Findings {
			if o.ID == "N4" { // what watching costs: on a busy machine another figure, and no failure
				continue
			}
			if o.NotDone == "" && finding.Verdict != truth.Holds {
				t.Errorf("%s: %q %s: %v %s", o.ID, finding.Claim, finding.Verdict, o.Values, o.Err)
			}
		}
	}
}

// testSharing measures the mix, and reports it.
func testSharing(t *testing.T, dir string) {
	out := t.TempDir()
	err := run(t.Context(), []string{"-programs", dir, "-out", out, "-seconds", "0.1", "-repeats", "1", "-copies", "1,2", "sharing-mix", "report"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.Read(filepath.Join(out, "sharing-mix"))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Simulated || r.Label != "mix" || r.Command[0] != "./gpujob" || len(r.Runs) != 5 {
		t.Errorf("simulated %v, label %q, %d runs of %q", r.Simulated, r.Label, len(r.Runs), r.Command[0])
	}
	if _, err := os.Stat(filepath.Join(out, "sharing-mix/logs")); err == nil {
		t.Error("what copies that did well said is kept")
	}
	for _, name := range []string{"report.md", "mix-throughput.svg", "inventory.json"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(out, "sharing-mix.part.json"))
	var note struct {
		Simulated bool `json:"simulated"`
		Left      bool `json:"left_as_it_was"`
	}
	if err == nil {
		err = json.Unmarshal(b, &note)
	}
	if err != nil || !note.Simulated || !note.Left {
		t.Errorf("%v: %s", err, b)
	}
	testLeft(t, dir)
	testMIG(t, dir, out)
	if err := run(t.Context(), []string{"-programs", dir, "-out", out, "sharing-training"}); err == nil || !strings.Contains(err.Error(), "python3 with torch and CUDA is needed") {
		t.Errorf("training without torch: %v", err)
	}
	testTraining(t, dir, out)
}

// testLeft: what a part had no time for is an error, and the next attempt measures it,
// of the same command, so that both are one result in the report.
func testLeft(t *testing.T, dir string) {
	t.Helper()
	out := t.TempDir()
	mix := func(args string) error {
		return run(t.Context(), append([]string{"-programs", dir, "-out", out, "-repeats", "1"}, strings.Fields(args)...))
	}
	if err := mix("-seconds 1.5 -limit 9s -copies 2,4,8,12 sharing-mix"); !errors.Is(err, errTime) {
		t.Fatalf("without time for twelve copies it says %v", err)
	}
	before, err := bench.Read(filepath.Join(out, "sharing-mix"))
	if left := report.Left(before); err != nil || !slices.Contains(left, 12) {
		t.Fatalf("%v left: %v", left, err)
	}
	// A short job of the same command: what is measured of it does not matter.
	before.Command = []string{"./gpujob", "load", "10", "50"}
	before.Skipped = slices.DeleteFunc(before.Skipped, func(s bench.Skip) bool { return s.Copies != 12 })
	if err := before.Write(filepath.Join(out, "sharing-mix")); err != nil {
		t.Fatal(err)
	}
	if err := mix("-seconds 0.1 -copies 1,2,4 -suffix -try2 -after sharing-mix sharing-mix report"); err != nil {
		t.Fatal(err)
	}
	after, err := bench.Read(filepath.Join(out, "sharing-mix-try2"))
	same := after.Label == "mix" && slices.Equal(after.Command, before.Command)
	if err != nil || !same || len(after.Runs) != 4 || len(report.Left(after)) > 0 {
		t.Errorf("%v: %q %q, %d runs", err, after.Label, after.Command, len(after.Runs))
	}
	page, err := os.ReadFile(filepath.Join(out, "report.md"))
	text := string(page)
	if err != nil || strings.Count(text, "\n## mix\n") != 1 || strings.Contains(text, "with 12 copies: the time limit") {
		t.Errorf("%v\n%s", err, page)
	}
}

// testTraining has a stand-in for Python and its torch tell of steps of half a
// millisecond: so many are measured as take as long as was asked for.
func testTraining(t *testing.T, dir, out string) {
	t.Helper()
	bin := t.TempDir()
	const script = "#!/bin/sh\nsimjob alloc 100 load 20 50ms >&2 && echo '{\"step\":\"train\",\"code\":0,\"ms\":'$(($3 / 2))',\"at\":'$(date +%s)'}'\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := run(t.Context(), []string{"-programs", dir, "-out", out, "-seconds", "2", "-repeats", "1", "-copies", "2", "-suffix", "-again", "sharing-training"}); err != nil {
		t.Fatal(err)
	}
	r, err := bench.Read(filepath.Join(out, "sharing-training-again"))
	if got, want := strings.Join(r.Command, " "), "python3 ./train.py --steps 8000"; err != nil || got != want || len(r.Runs) != 4 {
		t.Errorf("%v: %q, not %q; %q, %d runs", err, got, want, r.Label, len(r.Runs))
	}
	if r.Label != "training-again" { // its plots have names of their own
		t.Errorf("label %q", r.Label)
	}
	if b, err := os.ReadFile(filepath.Join(out, "sharing-training-again/work.json")); err != nil || strings.Count(string(b), `"mode"`) != 4 {
		t.Errorf("%v: %s", err, b)
	}
}

// TestAmount: a GPU of which a job wants millions of turns is not started with
// hundreds of them too often, nor mistaken by what a launch costs.
func TestAmount(t *testing.T) {
	dir := t.TempDir()
	// 20000 turns in a millisecond, and 20 µs for the launch.
	const script = "#!/bin/sh\necho x >>calls\nus=$(($4 / 20 + 20))\nprintf '{\"step\":\"compute\",\"code\":0,\"ms\":%d.%03d,\"at\":1}\\n' $((us / 1000)) $((us % 1000))\n"
	if err := os.WriteFile(filepath.Join(dir, "gpujob"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m := &machine{programs: dir}
	n, err := m.amount(t.Context(), kernel, 150)
	if err != nil || n < 2_900_000 || n > 3_000_000 {
		t.Errorf("%d turns for 150 ms, %v", n, err)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || len(calls) > 2*5 {
		t.Errorf("%d calls, %v", len(calls)/2, err)
	}
}

// testMIG measures the same work on MIG devices, in a second run.
func testMIG(t *testing.T, dir, out string) {
	t.Helper()
	simgpu := func(args ...string) {
		if text, err := exec.CommandContext(t.Context(), "simgpu", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	simgpu("mig", "0", "on")
	simgpu("mig", "0", "create", "1g.10gb", "1g.10gb")
	err := run(t.Context(), []string{"-programs", dir, "-out", out, "-seconds", "0.1", "-repeats", "1", "-copies", "2", "sharing-mix", "report"})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.md"))
	if err != nil || !strings.Contains(string(page), "|  | exclusive | timeslice | mps | mps-capped | mig 1g.10gb |") {
		t.Errorf("%v\n%s", err, page)
	}
	simgpu("mig", "0", "destroy")
	simgpu("mig", "0", "off")
}

func TestDifference(t *testing.T) {
	was := state{GPU: gpu.GPU{ComputeMode: gpu.ComputeModeDefault}, Processes: []int{7}}
	if err := difference(was, state{GPU: was.GPU}); err != nil {
		t.Errorf("a process that ended by itself: %v", err)
	}
	is := state{GPU: gpu.GPU{ComputeMode: gpu.ComputeModeExclusiveProcess, MIGEnabled: true}, Processes: []int{7, 8}}
	err := difference(was, is)
	for _, want := range []string{"the compute mode was default and is exclusive-process", "the MIG mode or devices changed", "process 8 is left"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestPartsAreKnown(t *testing.T) {
	for name := range parts() {
		if !strings.Contains(usage, "  "+name+" ") {
			t.Errorf("the help does not name %s", name)
		}
	}
	if err := run(t.Context(), []string{"-out", t.TempDir(), "bogus"}); err == nil || !strings.Contains(err.Error(), `no part "bogus"`) {
		t.Error(err)
	}
	if err := run(t.Context(), nil); err == nil {
		t.Error("no part is enough")
	}
}

//go:build cgo

package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/test/proctree"
	"github.com/gpuslot/gpuslot/test/sim"
)

// cgroupNode names the node of a test that runs in a process of its own: a
// process loads one NVML.
const cgroupNode = "GPUSLOT_TEST_CGROUP_NODE"

// simulatedCgroups is an agent on a simulated node of driver 615, with real
// cgroups and CUDA jobs in them. Starters are of a proc(5) of the test's own.
type simulatedCgroups struct {
	*Agent
	t    *testing.T
	dir  string
	lib  *nvml.Library
	gpu  gpu.UUID
	proc fakeProc
	// mount is cgroup v2's, own the test's directory in it.
	mount, own string
	said       bytes.Buffer
}

// TestCgroupsSimulated: jobs of several processes, on both back-ends of the driver.
func TestCgroupsSimulated(t *testing.T) { onSimulatedCgroups(t, "", (*simulatedCgroups).life) }

// onSimulatedCgroups lets a test do something on both back-ends, with this configuration.
func onSimulatedCgroups(t *testing.T, text string, do func(*simulatedCgroups)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups and limits are root's")
	}
	if dir := os.Getenv(cgroupNode); dir != "" {
		do(newSimulatedCgroups(t, dir, os.Getenv("GPUSLOT_TEST_BACKEND"), text))
		return
	}
	mount, name := cgroup2Mount(t), t.Name()
	for _, backend := range []string{"dmem", "misc"} {
		t.Run(backend, func(t *testing.T) {
			n := sim.NewVariant(t, "615", "RTXPRO6000")
			if out, code := n.Run(t.Context(), filepath.Join(n.Dir, "bin/simgpu"), "cgroups", backend, mount); code != 0 {
				t.Fatal(out)
			}
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+name+"$", "-test.v", "-test.count=1")
			cmd.Env = append(n.Env(), cgroupNode+"="+n.Dir, "GPUSLOT_TEST_BACKEND="+backend)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Error(err)
			}
		})
	}
}

// cgroup2Mount is where this machine has a cgroup v2 tree that can be written.
func cgroup2Mount(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		try := filepath.Join(f[1], fmt.Sprintf("agent-try-%d", os.Getpid()))
		if os.Mkdir(try, 0o755) == nil {
			_ = os.Remove(try)
			return f[1]
		}
	}
	t.Skip("needs a writable cgroup v2 tree")
	return ""
}

func newSimulatedCgroups(t *testing.T, dir, backend, sharing string) *simulatedCgroups {
	t.Helper()
	s := &simulatedCgroups{t: t, dir: dir, proc: newFakeProc(t), mount: cgroup2Mount(t)}
	s.own = fmt.Sprintf("/agent-test-%d", os.Getpid())
	t.Cleanup(func() { s.remove(s.own) })
	var err error
	if s.lib, err = nvml.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.lib.Close(context.WithoutCancel(t.Context())) })
	inv, _, err := s.lib.Inventory(t.Context())
	if err != nil || len(inv.GPUs) != 1 {
		t.Fatal(inv, err)
	}
	s.gpu = inv.GPUs[0].UUID
	files := t.TempDir()
	sys := filepath.Join(files, "sys")
	toml := filepath.Join(files, "gpuslot.toml")
	run, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	text := fmt.Sprintf("[paths]\nrun = %q\nstate = %q\n[metrics]\nlisten = \"\"\n", run+"/r", run+"/s") + sharing
	for _, err := range []error{os.MkdirAll(filepath.Join(sys, "fs/cgroup"), 0o755), os.WriteFile(toml, []byte(text), 0o644),
		os.WriteFile(filepath.Join(sys, "fs/cgroup/cgroup.controllers"), []byte("cpu memory "+backend+"\n"), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(toml)
	if err != nil {
		t.Fatal(err)
	}
	daemons := newFakeDaemons()
	s.Agent, err = newAgent(Options{ConfigFile: toml, Log: slog.New(slog.NewTextHandler(&s.said, nil)), Hardware: &fakeHardware{inv: inv},
		Startd: &fakeStartd{version: condor.Version{Major: 25, Minor: 14, Patch: 1}}, daemons: daemons, clients: daemons, pipes: newFakeAccess(),
		probe: (&testAgent{can: driver550()}).options().probe, proc: s.proc.Root, sys: sys, cgroupRoot: s.mount,
		MemoryLimits: func() (bool, bool) { return s.lib.HasMemoryLimits(), true }, Cgroups: s.lib}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.recall(t.Context(), cfg.Paths); err != nil {
		t.Fatal(err)
	}
	s.apply(t.Context(), true)
	return s
}

// remove ends the processes of a cgroup and removes it with all below it.
func (s *simulatedCgroups) remove(cgroup string) {
	dirs, _ := filepath.Glob(filepath.Join(s.mount, cgroup, "*", "."))
	for _, d := range dirs {
		s.remove(strings.TrimPrefix(filepath.Dir(d+"/."), s.mount))
	}
	for range 2000 {
		if err := syscall.Rmdir(filepath.Join(s.mount, cgroup)); !errors.Is(err, syscall.EBUSY) {
			return
		}
		time.Sleep(time.Millisecond) // a process that was killed leaves a moment later
	}
}

// leaf is the cgroup of a job, as HTCondor makes it.
func (s *simulatedCgroups) leaf(st starter.Starter) string { return s.own + proctree.CgroupOf(st.Slot) }

// cudaJob is a process in a job's cgroup: it waits there before it uses CUDA.
type cudaJob struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// process starts one and shows it to the agent.
func (s *simulatedCgroups) process(st starter.Starter, words string) *cudaJob {
	s.t.Helper()
	return s.processIn(st, s.leaf(st), words)
}

// processIn starts one in a cgroup of a job's.
func (s *simulatedCgroups) processIn(st starter.Starter, cgroup, words string) *cudaJob {
	s.t.Helper()
	dir := filepath.Join(s.mount, cgroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", fmt.Sprintf("echo $$ >%s/cgroup.procs && echo in && read x && exec %s/bin/simjob go on %s until eof", dir, s.dir, words))
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	j := &cudaJob{s.t, cmd, in, bufio.NewScanner(out)}
	s.t.Cleanup(j.kill)
	j.says("in")
	s.proc.Add(proctree.Process{PID: cmd.Process.Pid, Parent: st.PID, Comm: "simjob", Cgroup: cgroup})
	return j
}

// goOn lets it use CUDA.
func (j *cudaJob) goOn() { _, _ = io.WriteString(j.in, "x\n") }

// says reads up to a line that begins so.
func (j *cudaJob) says(want string) string {
	j.t.Helper()
	for j.out.Scan() {
		if strings.HasPrefix(j.out.Text(), want) {
			return j.out.Text()
		}
		j.t.Log(j.out.Text())
	}
	j.t.Fatalf("it never said %q", want)
	return ""
}

func (j *cudaJob) kill() {
	_ = j.cmd.Process.Kill()
	_ = j.cmd.Wait()
}

func (s *simulatedCgroups) round() {
	s.limits.Round(s.t.Context(), s.view.Load().limits())
}

// rounds are rounds until it is so. A look at cgroups that began before a change may count for the first one.
func (s *simulatedCgroups) rounds(what string, is func() bool) {
	s.t.Helper()
	late := time.Now().Add(time.Minute)
	for s.round(); !is(); s.round() {
		if time.Now().After(late) {
			s.t.Fatalf("waited for %s; %s reserved:\n%s", what, s.reserved(), s.said.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// reserved is the soft limit of the cgroup above all jobs'.
func (s *simulatedCgroups) reserved() gpu.MiB {
	s.t.Helper()
	l, err := s.lib.MemoryLimits(s.t.Context(), s.gpu, filepath.Join(s.mount, s.own, "htcondor"))
	if err != nil && !errors.Is(err, gpu.ErrNoMemoryLimits) {
		s.t.Fatal(err)
	}
	return l.Soft.MiB()
}

func (s *simulatedCgroups) admit(pid int, slot string, mib int64) starter.Starter {
	s.t.Helper()
	st := s.proc.starter(pid, slot)
	if reply := s.admission.Prepare(s.t.Context(), hookOf(st, 1000), jobOn(st, "alice", s.gpu, mib)); reply.Grant == nil {
		s.t.Fatalf("%+v %s", reply.Refusal, reply.Error)
	}
	return st
}

// simgpu changes the simulated node.
func (s *simulatedCgroups) simgpu(args ...string) {
	s.t.Helper()
	if out, err := exec.CommandContext(s.t.Context(), s.dir+"/bin/simgpu", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("simgpu %v: %s", args, out)
	}
}

// life is that of two jobs: one of two processes, which ends without a word,
// and its neighbour, which tells of its end.
func (s *simulatedCgroups) life() {
	t := s.t
	sum := func(n gpu.MiB) gpu.MiB {
		if os.Getenv("GPUSLOT_TEST_BACKEND") == "misc" {
			return 0 // no hierarchy: nothing is added up
		}
		return n
	}
	reserved := func(want gpu.MiB) {
		t.Helper()
		if got := s.reserved(); got != sum(want) {
			t.Errorf("%s reserved above the jobs, want %s", got, sum(want))
		}
	}
	st, neighbour := s.admit(100, "slot1_1", 4096), s.admit(200, "slot1_2", 8192)
	first, second := s.process(st, "info alloc 2000"), s.process(st, "alloc 1500")
	third := s.process(neighbour, "info alloc 5000")
	s.round()
	reserved(4096 + 8192)
	first.goOn()
	if got := first.says("info"); !strings.Contains(got, " of 4096 MiB: ok") {
		t.Errorf("CUDA shows %q, not the budget", got)
	}
	first.says("alloc 2000 MiB: ok")
	second.goOn()
	if got := second.says("alloc 1500"); !strings.Contains(got, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("the second process of the job got what is beyond the budget: %q", got)
	}
	if os.Getenv("GPUSLOT_TEST_BACKEND") == "dmem" { // that misc does so is not published
		left := s.processIn(st, filepath.Dir(s.leaf(st))+"/mine", "alloc 1500")
		left.goOn()
		if got := left.says("alloc 1500"); !strings.Contains(got, "CUDA_ERROR_OUT_OF_MEMORY") {
			t.Errorf("a process of the job that left its cgroup got what is beyond the budget: %q", got)
		}
		left.kill()
	}
	third.goOn()
	third.says("alloc 5000 MiB: ok")
	s.round()
	for _, j := range s.status().GPUs[0].Jobs {
		if j.EnforcedBy != jobs.EnforcedByCgroup {
			t.Errorf("wall %s of %s", j.EnforcedBy, j.Slot)
		}
	}
	of := s.jobs.Running()[0]
	if used := s.limits.Used(of.Starter, of.GPU, time.Now()); !used.Known || used.Value.MiB() < 2000 || used.Value.MiB() > 4096 {
		t.Errorf("the driver counts %+v", used)
	}

	first.kill()
	second.kill()
	s.remove(filepath.Dir(s.leaf(st)))
	s.proc.End(st.PID)
	s.sweeper.now()
	reserved(4096 + 8192)
	s.rounds("the ended job's reservation to go", func() bool { return s.reserved() == sum(8192) })

	if _, err := s.ender.End(t.Context(), hookOf(neighbour, 1000)); err != nil {
		t.Fatal(err)
	}
	reserved(0)
	third.kill()
	s.remove(filepath.Dir(s.leaf(neighbour)))
	s.rounds("nothing to be kept", func() bool {
		b, err := os.ReadFile(cgroupsFile(s.view.Load().config.Paths))
		return err == nil && strings.TrimSpace(string(b)) == "[]"
	})
	if t.Failed() {
		t.Log(s.said.String())
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/test/poll"
	"github.com/gpuslot/gpuslot/test/sim"
)

// TestBench runs testdata/bench/*.txtar against the real program on a simulated
// H100: its NVML, libcuda and control daemon. No process and no directory of a
// benchmark may be left.
func TestBench(t *testing.T) {
	dir := sim.Dir(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/bench",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			tmp, err := os.MkdirTemp("/tmp", "b") // a pipe directory has 87 bytes at most
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(tmp) })
			e.Setenv("TMPDIR", tmp)
			e.Setenv("GPUSLOT_SIM_STATE", filepath.Join(tmp, "state"))
			e.Setenv("LD_LIBRARY_PATH", filepath.Join(dir, "lib"))
			e.Setenv("PATH", filepath.Join(dir, "bin")+":"+e.Getenv("PATH"))
			poke := exec.CommandContext(t.Context(), filepath.Join(dir, "bin/simpoke"), "make", "550.163.01", "H100-80")
			poke.Env = e.Vars
			return poke.Run()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"clean": benchLeft, "agent": startAgent},
	})
}

// benchLeft fails if processes or directories of a benchmark remain: those with
// this script's state in their environment.
func benchLeft(ts *testscript.TestScript, _ bool, _ []string) {
	left, err := filepath.Glob(filepath.Join(ts.Getenv("TMPDIR"), "gpuslot*"))
	ts.Check(err)
	entries, err := os.ReadDir("/proc")
	ts.Check(err)
	for _, e := range entries {
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains(string(env), "GPUSLOT_SIM_STATE="+ts.Getenv("GPUSLOT_SIM_STATE")) {
			name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			left = append(left, e.Name()+" "+string(name))
		}
	}
	if len(left) > 0 {
		ts.Fatalf("bench left %q", left)
	}
}

// TestBenchInterrupted: Ctrl-C ends the copies, their children, the control
// daemon and its server, and what was measured is printed.
func TestBenchInterrupted(t *testing.T) {
	n := sim.New(t, "550.163.01", "H100-80")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gpuslot := filepath.Join(dir, "gpuslot") // testscript finds the program by its name
	if err := os.Symlink(self, gpuslot); err != nil {
		t.Fatal(err)
	}
	// The first run ends; with two copies the job tells that it is there, and waits
	// for a child that does not end when it is told to.
	job := filepath.Join(dir, "job")
	script := "#!/bin/sh\ntest $GPUSLOT_BENCH_COPIES = 1 && exit 0\n" +
		"(trap '' TERM; exec simjob alloc 100 go on until eof </dev/zero) &\n: >" + dir + "/there$GPUSLOT_BENCH_COPY\nwait\n"
	if err := os.WriteFile(job, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), gpuslot, "bench", "--cold", "--copies", "2", "--modes", "exclusive,mps", "--repeats", "1", "--", job)
	cmd.Env = append(n.Env(), "PATH="+filepath.Join(n.Dir, "bin")+":"+os.Getenv("PATH"), "TMPDIR=/tmp")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "there1"))
		return err == nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code says that there is no advice
	if !strings.Contains(out.String(), "mps, 2 copies: bench was interrupted before") || !strings.Contains(out.String(), "exclusive") {
		t.Errorf("it says\n%s", out.String())
	}
	if cmd.ProcessState.ExitCode() != exitFound {
		t.Errorf("exit code %d", cmd.ProcessState.ExitCode())
	}
	await(t, func() bool { return len(living(t, n.State)) == 0 })
}

// TestBenchKilled: a benchmark that has no time to say anything has kept what it
// measured before, and what it had not come to.
func TestBenchKilled(t *testing.T) {
	n := sim.New(t, "550.163.01", "H100-80")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gpuslot, there := filepath.Join(dir, "gpuslot"), filepath.Join(dir, "there") // testscript finds the program by its name
	if err := os.Symlink(self, gpuslot); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), gpuslot, "bench", "--cold", "--copies", "2,4", "--modes", "exclusive,timeslice", "--repeats", "2", "-o", dir+"/out",
		"--", "sh", "-c", "test $GPUSLOT_BENCH_COPIES = 1 && exit 0; : >"+there+"; exec sleep 60")
	cmd.Env = append(n.Env(), "PATH="+filepath.Join(n.Dir, "bin")+":"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { _, err := os.Stat(there); return err == nil })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	await(t, func() bool { // the copies outlive it, and one may be about to write into dir
		left := living(t, n.State)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	r, err := bench.Read(dir + "/out")
	if err != nil || len(r.Runs) != 1 || len(r.Skipped) != 2 || r.Skipped[0].Copies != 2 || !strings.Contains(r.Skipped[0].Reason, "cut off") {
		t.Errorf("%v: %d runs, %+v", err, len(r.Runs), r.Skipped)
	}
}

// living are the processes that live on a simulated node.
func living(t *testing.T, state string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if pid, bad := strconv.Atoi(e.Name()); bad == nil && err == nil && strings.Contains(string(env), "GPUSLOT_SIM_STATE="+state) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func await(t *testing.T, is func() bool) {
	t.Helper()
	if !poll.Until(5*time.Minute, 10*time.Millisecond, is) {
		t.Fatal("it does not come to that")
	}
}

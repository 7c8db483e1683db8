//go:build cgo

package agent

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/test/proctree"
	"github.com/gpuslot/gpuslot/test/sim"
)

// unlistedNode names the node of a test that runs in a process of its own: a process loads one
// NVML.
const unlistedNode = "GPUSLOT_TEST_UNLISTED_NODE"

// TestUnlistedSimulated: memory that NVML lists with no process is a state of its own, is never
// given to jobs, and closes the GPU when jobs lack it.
func TestUnlistedSimulated(t *testing.T) {
	if dir := os.Getenv(unlistedNode); dir != "" {
		unlistedLife(t, dir)
		return
	}
	onSimulatedNode(t, unlistedNode)
}

// onSimulatedNode runs a test again, on a simulated node with one T4, whose directory it gives
// in a variable.
func onSimulatedNode(t *testing.T, variable string, env ...string) {
	t.Helper()
	n := sim.New(t, "550.163.01", "T4")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(append(n.Env(), variable+"="+n.Dir), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Error(err)
	}
}

// onTheGPU is an agent on the GPU of the simulated node, and reads its usage.
func onTheGPU(t *testing.T) (*testAgent, gpu.UUID) {
	t.Helper()
	lib, err := nvml.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lib.Close(context.WithoutCancel(t.Context())) })
	inv, _, err := lib.Inventory(t.Context())
	if err != nil || len(inv.GPUs) != 1 {
		t.Fatal(inv, err)
	}
	ta := bareTestAgent(t, 1, "[usage]\ninterval = \"1m\"\n")
	ta.hw.inv.GPUs = inv.GPUs
	ta.restart()
	source := lib.Usage()
	t.Cleanup(func() { _ = source.Close(context.WithoutCancel(t.Context())) })
	ta.reads(laterUsage{source})
	return ta, inv.GPUs[0].UUID
}

func unlistedLife(t *testing.T, dir string) {
	ta, device := onTheGPU(t)
	set := func(mib string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin/simgpu"), "set", "0", "unlisted", mib).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for range 3 {
			ta.sampling.Round(t.Context())
		}
	}
	now := func() (api.Acceptance, api.StatusGPU) { return ta.answers.acceptances()[0], ta.status().GPUs[0] }
	set("0")
	if a, s := now(); !a.Accept || a.UnlistedMiB != 0 || s.Unlisted != "" {
		t.Fatalf("at first: %+v, %+v", a, s)
	}

	st := ta.proc.starter(100, "slot1_1")
	ta.grant(st, 1000, "alice", device, 8192)
	job := exec.CommandContext(t.Context(), filepath.Join(dir, "bin/simjob"), "alloc", "256", "until", "eof")
	in, _ := job.StdinPipe()
	t.Cleanup(func() { _ = in.Close(); _ = job.Wait() })
	out, err := job.StdoutPipe()
	if err == nil {
		err = job.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	for !strings.Contains(said.Text(), "alloc 256 MiB: ok") {
		if !said.Scan() {
			t.Fatal("the job did not get its memory")
		}
	}
	ta.proc.Add(proctree.Process{PID: job.Process.Pid, Parent: 100, Comm: "simjob", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})

	set("901") // 1417 MiB in use, 516 listed: a public listing of a T4 under MPS
	a, s := now()
	if !a.Accept || a.UnlistedMiB != 875 || a.TakenMiB != 270 || s.UnlistedMiB != 875 || !strings.Contains(s.Unlisted, "875 MiB of its VRAM are in use") {
		t.Errorf("901 MiB unlisted: %+v, %+v", a, s)
	}
	left := s.PoolMiB - 8192
	other := ta.proc.starter(101, "slot1_2")
	if r := ta.refuse(other, 1000, "alice", device, left); r.Code != api.CodeClosed || !strings.Contains(r.Reason, "lists with no process") {
		t.Errorf("a job of all that the pool has left: %+v", r)
	}
	judged := rules.Sampled(ta.sampling.Last(), &ta.view.Load().plan, ta.jobs.Running())
	if len(judged) != 1 || !judged[0].Memory.Known || judged[0].Memory.Value.MiB() < 256 || judged[0].Memory.Value.MiB() > 500 {
		t.Errorf("no job has what is not listed: %+v", judged)
	}
	if breaches, found := (rules.Breaches{}).Judge(judged, rules.Rules{Budgets: ta.view.Load().config.Budgets}, time.Now()); len(found)+len(breaches) > 0 {
		t.Errorf("held for what is not listed: %+v", found)
	}
	if r := ta.sampling.Record(ta.jobs.Running()[0], time.Now()); r.PeakMiB != nil {
		t.Errorf("the record says %d MiB", *r.PeakMiB)
	}
	ta.grant(other, 1000, "alice", device, left-a.TakenMiB)
	if a, _ := now(); !a.Accept || a.TakenMiB != 0 && a.TakenMiB > ta.freeOf(device) {
		t.Errorf("the pool is given out: %+v", a)
	}

	set("4000")
	if a, s := now(); a.Accept || s.Accept || !strings.Contains(a.Reason, "MiB of its VRAM are in use that NVML lists with no process, and running jobs lack") || a.Reason != s.Unlisted {
		t.Errorf("4000 MiB unlisted: %+v, %+v", a, s)
	}
	set("0")
	if a, s := now(); !a.Accept || a.UnlistedMiB != 0 || s.Unlisted != "" {
		t.Errorf("at the end: %+v, %+v", a, s)
	}
}

// laterUsage has readings of a time at which all processes of the test's own proc(5) run, and
// all are MPS clients.
type laterUsage struct{ *nvml.Usage }

func (u laterUsage) Read(ctx context.Context) ([]gpu.Reading, error) {
	readings, err := u.Usage.Read(ctx)
	for i := range readings {
		readings[i].At = readings[i].At.Add(time.Hour)
		for j := range readings[i].Processes.Value {
			readings[i].Processes.Value[j].MPSClient = true
		}
	}
	return readings, err
}

// freeOf is what the pool of a GPU has for new jobs.
func (ta *testAgent) freeOf(u gpu.UUID) int64 {
	g, _ := ta.view.Load().plan.Find(u)
	free := g.Pool
	ta.jobs.Look(func(v *jobs.View) {
		for _, r := range v.On(u) {
			free -= r.Budget
		}
	})
	return int64(free)
}

//go:build cgo

package agent

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// graphicsNode is as unlistedNode.
const graphicsNode = "GPUSLOT_TEST_GRAPHICS_NODE"

// TestGraphicsSimulated: a job that uses the GPU by OpenGL or Vulkan is over its budget like one
// that uses CUDA.
func TestGraphicsSimulated(t *testing.T) {
	if dir := os.Getenv(graphicsNode); dir != "" {
		graphicsLife(t, dir)
		return
	}
	onSimulatedNode(t, graphicsNode, "GPUSLOT_SIM_GRAPHICS=1")
}

func graphicsLife(t *testing.T, dir string) {
	ta, device := onTheGPU(t)
	st := ta.proc.starter(100, "slot1_1")
	ta.grant(st, 1000, "alice", device, 1024)
	job := exec.CommandContext(t.Context(), filepath.Join(dir, "bin/simjob"), "alloc", "4096", "until", "eof")
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
	for !strings.Contains(said.Text(), "alloc 4096 MiB: ok") {
		if !said.Scan() {
			t.Fatal("the job did not get its memory")
		}
	}
	ta.proc.Add(proctree.Process{PID: job.Process.Pid, Parent: 100, Comm: "simjob", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	ta.sampling.Round(t.Context())
	judged := rules.Sampled(ta.sampling.Last(), &ta.view.Load().plan, ta.jobs.Running())
	budgets := ta.view.Load().config.Budgets
	budgets.Grace = 0
	_, found := (rules.Breaches{}).Judge(judged, rules.Rules{Budgets: budgets}, time.Now())
	if len(found) != 1 || found[0].Code != api.CodeOverBudget || judged[0].Memory.Value.MiB() < 4096 {
		t.Errorf("a job that draws with 4096 MiB and has 1024: %+v of %+v", found, judged)
	}
}

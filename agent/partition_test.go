package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/partitions"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// whole are the chunks of the fake GPUs: 132 SMs of Hopper.
const whole = 16

// noPartitions breaks AddPartition and nothing else.
const noPartitions gpu.UUID = "partitions"

func (f *fakeDaemons) Partitions(_ context.Context, u gpu.UUID) ([]mps.Partition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[u]
	if d == nil || d.wedged || d.frozen {
		return nil, f.fault(u, mps.Wedged)
	}
	free := whole
	var all []mps.Partition
	for i, chunks := range d.partitions {
		free -= chunks
		n, sms, no := chunks, 8*chunks, false
		all = append(all, mps.Partition{GPU: string(u[:12]), Name: fmt.Sprintf("p%d...", i), UsedChunks: &n, UsedSMs: &sms, HasClients: &no})
	}
	return append([]mps.Partition{{GPU: string(u[:12]), FreeChunks: &free}}, all...), nil
}

// AddPartition gives ids that begin alike in every daemon, and refuses while
// there are clients.
func (f *fakeDaemons) AddPartition(_ context.Context, u gpu.UUID, chunks int) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.running[u]
	used := 0
	for _, n := range d.partitions {
		used += n
	}
	if used+chunks > whole || len(d.servers) > 0 || f.broken[noPartitions] != nil {
		return "", &mps.Error{GPU: u, Fault: mps.Refused, Text: "it answers Failed to fulfill the requested SM partition"}
	}
	d.partitions = append(d.partitions, chunks)
	return fmt.Sprintf("%s/p%dA+/", u, len(d.partitions)-1), nil
}

// partitionedAgent has one H200 in so many shares.
func partitionedAgent(t *testing.T, shares int) (ta *testAgent, restarts *int) {
	t.Helper()
	ta = bareTestAgent(t, 1, partitionedIn(shares))
	g := &ta.hw.inv.GPUs[0]
	g.Name, g.Capability, g.Multiprocessors = "NVIDIA H200", gpu.ComputeCapability{Major: 9}, 132
	ta.hw.inv.Driver = "590.48.01"
	ta.can.StaticPartitions = mps.Answer{Known: true, Has: true}
	restarts = ta.obedient(false)
	ta.restart()
	return ta, restarts
}

func partitionedIn(shares int) string {
	return fmt.Sprintf("[sharing]\nthreads = \"partitioned\"\nshares = %d\n", shares)
}

func (ta *testAgent) partitionOf(s starter.Starter) string {
	ta.t.Helper()
	env := ta.grant(s, 1000, "alice", uuid(0), 4096).Environment
	if _, has := env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]; has || env[mps.PartitionVariable] == "" {
		ta.t.Errorf("environment: %v", env)
	}
	return env[mps.PartitionVariable]
}

// TestPartitionedShares is the life of partitions: made with the daemon, given
// to one job each, kept over a restart of the agent, and made again with a daemon.
func TestPartitionedShares(t *testing.T) {
	ta, restarts := partitionedAgent(t, 4)
	if why := ta.reason(0); why != "" || *restarts != 0 {
		t.Fatalf("%q after %d restarts", why, *restarts)
	}
	if got := daemons.Flags(ta.config(), uuid(0)); !slices.Equal(got, []string{"-S"}) {
		t.Errorf("flags %q", got)
	}
	a, b := ta.proc.starter(100, "slot1_1"), ta.proc.starter(101, "slot1_2")
	ta.proc.Add(proctree.Process{PID: 200, Parent: 100, UID: 1000, Comm: "job"})
	ta.proc.Add(proctree.Process{PID: 201, Parent: 101, UID: 1000, Comm: "job"})
	first, second := ta.partitionOf(a), ta.partitionOf(b)
	if first == second || ta.partitionOf(a) != first {
		t.Errorf("partitions %s and %s", first, second)
	}
	if got := ta.status().GPUs[0].Jobs; len(got) != 2 || got[1].SMs == nil || *got[1].SMs != 32 {
		t.Errorf("status: %+v", got)
	}

	ta.startd.set([]condor.Slot{slotAd("slot1_1", "1.0", "alice", 4096, uuid(0)), slotAd("slot1_2", "1.1", "alice", 4096, uuid(0))}, nil)
	ta.restart()
	ta.startds.Ask(t.Context())
	if got := ta.partitionOf(b); got != second || *restarts != 0 || ta.reason(0) != "" {
		t.Errorf("after the agent's restart %s, want %s; %d restarts; %q", got, second, *restarts, ta.reason(0))
	}
	ta.proc.End(100)
	ta.sweeper.now()
	ta.apply(false)
	if text := ta.read(partitions.File(ta.config())); strings.Contains(text, `"PID": 100,`) || !strings.Contains(text, `"PID": 101,`) {
		t.Errorf("after a slot ended: %s", text)
	}
	if got := ta.partitionOf(ta.proc.starter(102, "slot1_1")); got != first {
		t.Errorf("%s, want the one that is free: %s", got, first)
	}

	// The daemon is another: nobody gets what its jobs from before still name.
	ta.daemons.kill(uuid(0), true)
	ta.proc.Add(proctree.Process{PID: ta.daemons.next, Parent: 1, Comm: "nvidia-cuda-mps", Args: []string{"x", "-S"}, Started: uint64(ta.daemons.next)})
	if r := ta.refuse(ta.proc.starter(103, "slot1_3"), 1000, "alice", uuid(0), 4096); r.Code != api.CodeClosed {
		t.Errorf("%+v", r)
	}
	ta.apply(false)
	third := ta.partitionOf(ta.proc.starter(104, "slot1_4"))
	if third == first || third == second || ta.partitionOf(b) != second {
		t.Errorf("%s beside %s and %s", third, first, second)
	}
}

// TestOtherPartitions: what was made otherwise is made again, after the jobs.
func TestOtherPartitions(t *testing.T) {
	ta, restarts := partitionedAgent(t, 4)
	s := ta.proc.starter(100, "slot1_1")
	ta.partitionOf(s)
	ta.writeConfig(partitionedIn(8))
	ta.apply(true)
	if why := ta.reason(0); !strings.Contains(why, "not the plan's (one is not of 2 chunks): its control daemon restarts when the jobs there have ended") {
		t.Errorf("reason %q", why)
	}
	ta.proc.End(100)
	ta.sweeper.now()
	ta.apply(false)
	if why := ta.reason(0); why != "" || *restarts != 1 {
		t.Errorf("%q after %d restarts", why, *restarts)
	}
	text := ta.read(partitions.File(ta.config()))
	if made := strings.Count(text, string(uuid(0))+"/p"); made != 8 || !strings.Contains(text, `"multiprocessors": 16`) {
		t.Errorf("%d were made: %s", made, text)
	}

	// Back to percentages: without partitions, and without the flag.
	ta.writeConfig("[sharing]\nshares = 8\n")
	ta.apply(true)
	if why := ta.reason(0); why != "" || *restarts != 2 || daemons.Flags(ta.config(), uuid(0)) != nil {
		t.Errorf("%q after %d restarts", why, *restarts)
	}
	if env := ta.grant(ta.proc.starter(101, "slot1_1"), 1000, "alice", uuid(0), 4096).Environment; env[mps.PartitionVariable] != "" {
		t.Errorf("environment: %v", env)
	}
}

// TestNoPartitionCanBeMade closes the GPU, says why, and leaves the daemon alone.
func TestNoPartitionCanBeMade(t *testing.T) {
	ta, restarts := partitionedAgent(t, 4)
	for name, c := range map[string]struct {
		do   func(*fakeDaemon)
		says string
	}{
		"refused": {func(*fakeDaemon) { ta.daemons.broken[noPartitions] = errors.New("no") }, "a static SM partition cannot be made: its control daemon: it answers Failed to fulfill"},
		"clients": {func(d *fakeDaemon) {
			d.servers = []mps.Server{{ID: process.ID{PID: 70, Started: 1}, Status: mps.Active, Clients: []int{71}}}
		}, "it has 1: they end with the jobs from before"},
	} {
		t.Run(name, func(t *testing.T) {
			ta.daemons.kill(uuid(0), true)
			ta.daemons.change(uuid(0), c.do)
			ta.proc.Add(proctree.Process{PID: ta.daemons.next, Parent: 1, Comm: "nvidia-cuda-mps", Args: []string{"x", "-S"}, Started: uint64(ta.daemons.next)})
			for range 3 {
				ta.apply(false)
			}
			if why := ta.reason(0); !strings.Contains(why, c.says) || *restarts != 0 {
				t.Errorf("%q after %d restarts", why, *restarts)
			}
			delete(ta.daemons.broken, noPartitions)
		})
	}
	// A stranger's partition is made away with once; if it comes back, the GPU
	// stays closed and its daemon alone.
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers, d.partitions = nil, nil })
	ta.apply(false)
	for range 3 {
		ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.partitions = []int{4, 4, 4, 3} })
		ta.apply(false)
	}
	if why := ta.reason(0); *restarts != 1 || !strings.Contains(why, "(one is not of 4 chunks), although its control daemon was restarted") {
		t.Errorf("%q after %d restarts", why, *restarts)
	}
}

// TestHeldOutsideTheBooks: a starter that runs keeps its partition, even if the
// startd knows nothing of it, and START hears of that.
func TestHeldOutsideTheBooks(t *testing.T) {
	ta, _ := partitionedAgent(t, 2)
	for pid, slot := range map[int]string{100: "slot1_1", 101: "slot1_2"} {
		ta.partitionOf(ta.proc.starter(pid, slot))
	}
	if why := ta.reason(0); why != "" {
		t.Errorf("with all shares in use: %q", why)
	}
	last := ta.jobs.Running()[1]
	ta.jobs.Release(last.Starter, last.GPU)
	if why := ta.reason(0); why != admission.NoPartition {
		t.Errorf("reason %q", why)
	}
	if r := ta.refuse(ta.proc.starter(102, "slot1_3"), 1000, "alice", uuid(0), 4096); !strings.Contains(r.Reason, admission.NoPartition) {
		t.Errorf("%+v", r)
	}
}

// TestFewerChunks: the daemon counts fewer than the multiprocessors make.
func TestFewerChunks(t *testing.T) {
	ta, restarts := partitionedAgent(t, 9)
	ta.hw.inv.GPUs[0].Multiprocessors = 144
	ta.apply(false) // what was made for 132 is made again
	if why := ta.reason(0); !strings.Contains(why, "its control daemon has 16 free chunks of multiprocessors, too few for 9 static SM partitions of 2: set shares to 8 or less") || *restarts != 1 {
		t.Errorf("%q after %d restarts", why, *restarts)
	}
}

// TestUsedCapability: what is used is not called unused.
func TestUsedCapability(t *testing.T) {
	ta, _ := partitionedAgent(t, 4)
	for _, with := range []bool{true, false} {
		if got := slices.ContainsFunc(ta.status().MissingEnforcement, func(s string) bool { return strings.Contains(s, `threads = "partitioned"`) }); got == with {
			t.Errorf("partitions are used: %v; %q", with, ta.status().MissingEnforcement)
		}
		ta.writeConfig("")
		ta.apply(true)
	}
}

// TestPartitionsThatCannotBeKept: a job is refused rather than given one that the
// next agent would give to another.
func TestPartitionsThatCannotBeKept(t *testing.T) {
	ta, _ := partitionedAgent(t, 4)
	file := partitions.File(ta.config())
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if r := ta.refuse(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096); !strings.Contains(r.Reason, "cannot be kept") {
		t.Errorf("%+v", r)
	}
	if daemon := ta.view.Load().daemons[uuid(0)].Checked.Process(); !ta.partitions.HasFree(uuid(0), daemon) || len(ta.jobs.Running()) != 0 {
		t.Error("the job has its partition all the same")
	}
}

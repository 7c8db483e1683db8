package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestServerCostsWhatItUses: the pool shrinks when an MPS server uses more VRAM than the
// plan keeps for it, and does not grow again with the next sample.
func TestServerCostsWhatItUses(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	pool := func(want gpu.MiB) {
		t.Helper()
		if g := ta.apply(false).plan.GPUs[0]; g.Pool != want {
			t.Fatalf("a pool of %s (%s), want %s", g.Pool, g.Kept, want)
		}
	}
	pool(32256) // 32768 - 258 - 64 - 64
	server := process.ID{PID: 60, Started: proctree.StartOf(60)}
	ta.proc.Add(proctree.Process{PID: server.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: server.Started})
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = []mps.Server{{ID: server, Status: mps.Active}} })
	ta.apply(false)
	r := gpu.Reading{GPU: uuid(0), At: time.Now().Add(time.Hour)}
	source := &fakeUsage{[]gpu.Reading{r}}
	ta.reads(source)
	uses := func(mib gpu.MiB) {
		source.readings[0].Processes = gpu.Known([]gpu.DeviceProcess{{PID: server.PID, Memory: gpu.Known(gpu.Bytes(mib.Bytes()))}})
		for range 5 { // what fewer samples show counts for nothing
			ta.sampling.Round(t.Context())
		}
	}
	uses(60)
	pool(32256)
	uses(700)
	pool(31232) // 32768 - 258 - 704 - 64 = 31742
	uses(60)
	pool(31232)
	if inForce := ta.view.Load().plan; inForce.Servers()[uuid(0)] != 704 {
		t.Errorf("the plan keeps %v for servers", inForce.Servers())
	}
}

// TestUnseenGPU: where no sample shows what jobs use, no job is admitted.
func TestUnseenGPU(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	source := &sourceThatHangs{}
	ta.reads(source)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go ta.sampling.Run(ctx)
		time.Sleep(time.Second + time.Second/2)
		synctest.Wait()
		s := ta.proc.starter(5000, "slot1_1")
		ta.grant(s, 1000, "alice", uuid(0), 1024)
		gone := make(chan struct{})
		source.hang(gone)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		next := ta.proc.starter(5001, "slot1_2")
		if r := ta.refuse(next, 1000, "alice", uuid(0), 1024); r.Code != api.CodeClosed ||
			!strings.Contains(r.Reason, "has not been read for more than 2s") {
			t.Errorf("%+v", r)
		}
		if s := ta.reader.Take(time.Now()); s.GPUs[0].Seen != gpu.Known(false) || s.Accepts(&s.GPUs[0]) {
			t.Errorf("the snapshot has %+v", s.GPUs[0])
		}
		source.hang(nil)
		close(gone)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		ta.grant(next, 1000, "alice", uuid(0), 1024)
		cancel()
		synctest.Wait()
	})
}

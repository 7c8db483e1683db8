package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// twoGPUs is a driver of two GPUs without processes, of which some hang.
type twoGPUs struct {
	hangs map[gpu.UUID]bool
	clock *time.Time
}

var errHangs = errors.New("nvmlDeviceGetMemoryInfo has not returned")

func (d twoGPUs) Read(context.Context) ([]gpu.Reading, error) {
	var out []gpu.Reading
	for i := range 2 {
		r := gpu.Reading{GPU: uuid(i), At: *d.clock}
		if r.Memory, r.Processes = gpu.Known(gpu.MemoryUse{}), gpu.Known([]gpu.DeviceProcess(nil)); d.hangs[r.GPU] {
			r = gpu.Reading{GPU: uuid(i), At: *d.clock, Err: errHangs}
		}
		out = append(out, r)
	}
	return out, nil
}

// TestBlindWatch: a GPU whose jobs' memory has not been read for two sampling
// intervals takes no new jobs, whatever the others do; that is logged once and is
// a metric. It opens when the watch looks again.
func TestBlindWatch(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	ta.apply(true)
	var log bytes.Buffer
	ta.log = slog.New(slog.NewTextHandler(&log, nil))
	clock := time.Now().Add(-time.Hour) // the hook asks long after the last look
	driver := twoGPUs{hangs: map[gpu.UUID]bool{}, clock: &clock}
	ta.sampler = usage.NewSampler(usage.Options{Source: driver, Site: site{ta.Agent}, Interval: time.Second, Proc: t.TempDir(), Now: func() time.Time { return clock }})
	ta.looks.Begin(clock)
	var blind map[gpu.UUID]time.Time
	look := func() {
		ta.sampler.Round(t.Context())
		ta.watch(t.Context(), rules.Breaches{}, clock)
	}
	// want says of which GPUs the watch must be blind now.
	want := func(when string, lines int, gpus ...bool) {
		t.Helper()
		blind = ta.seeWatch(blind, clock)
		for i, is := range gpus {
			closed := ta.health(ta.view.Load(), uuid(i), clock).Closed
			g := &ta.view.Load().plan.GPUs[i]
			if _, said := blind[uuid(i)]; said != is || strings.Contains(closed, "has not been read for more than 2s") != is {
				t.Errorf("%s: GPU %d is blind: %v, want %v; closed: %q", when, i, said, is, closed)
			}
			if up := ta.watchedGPU(ta.view.Load(), g, clock); up != gpu.Known(!is) {
				t.Errorf("%s: GPU %d: the metric says %+v", when, i, up)
			}
		}
		if n := strings.Count(log.String(), "the budget watch does not see"); n != lines {
			t.Errorf("%s: %d warnings, want %d:\n%s", when, n, lines, log.String())
		}
	}
	look()
	want("at first", 0, false, false)
	driver.hangs[uuid(1)] = true
	for range 2 {
		clock = clock.Add(time.Second)
		look()
	}
	want("two intervals after", 0, false, false)
	clock = clock.Add(time.Second)
	look()
	want("GPU 1 hangs", 1, false, true)
	want("GPU 1 hangs on", 1, false, true)
	if !strings.Contains(log.String(), errHangs.Error()) {
		t.Errorf("the cause is not logged:\n%s", log.String())
	}
	ta.apply(false)
	s := ta.proc.starter(5000, "slot1_1")
	if r := ta.refuse(s, 1000, "alice", uuid(1), 1024); r == nil || r.Code != api.CodeClosed {
		t.Errorf("a job is admitted where nothing holds it to its budget: %+v", r)
	}

	clear(driver.hangs)
	look()
	want("the driver answers", 1, false, false)
	clock = clock.Add(2*time.Second + 1)
	want("the loop stands still", 3, true, true)
}

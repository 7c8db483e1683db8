package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fullNode is a driver with one process in each slot of a benchAgent.
type fullNode struct {
	readings []gpu.Reading
	energy   uint64
}

func (n *fullNode) Read(context.Context) ([]gpu.Reading, error) {
	n.energy += 300e3
	for i := range n.readings {
		n.readings[i].At, n.readings[i].Energy = time.Now(), gpu.Known(n.energy)
	}
	return n.readings, nil
}

// countingDriver counts every way to the driver that an agent has.
type countingDriver struct {
	fullNode
	hardware.Source
	calls atomic.Int64
}

func (d *countingDriver) Read(ctx context.Context) ([]gpu.Reading, error) {
	d.calls.Add(1)
	return d.fullNode.Read(ctx)
}

func (d *countingDriver) Inventory(ctx context.Context) (gpu.Inventory, []error, error) {
	d.calls.Add(1)
	return d.Source.Inventory(ctx)
}

func (d *countingDriver) SetComputeMode(ctx context.Context, u gpu.UUID, m gpu.ComputeMode) error {
	d.calls.Add(1)
	return d.Source.SetComputeMode(ctx, u, m)
}

func (d *countingDriver) Watch(context.Context, func(gpu.Event)) error {
	d.calls.Add(1)
	return nil
}

func (d *countingDriver) Conditions(context.Context, []gpu.UUID) ([]gpu.Condition, error) {
	d.calls.Add(1)
	return nil, nil
}

// TestNoDriverInsideAScrape: scrapes and the page of a full node ask the driver
// nothing, by whichever way.
func TestNoDriverInsideAScrape(t *testing.T) {
	ta, _ := benchAgent(t, 1000)
	d := &countingDriver{Source: ta.hw}
	for g := range 16 {
		d.readings = append(d.readings, gpu.Reading{GPU: uuid(g), Index: g, Use: gpu.Use{Processes: gpu.Known([]gpu.DeviceProcess{})}})
	}
	ta.hardware.Source = d
	ta.faults = faults.NewWatcher(faults.Options{Alarms: d, File: faults.File(ta.view.Load().config.Paths),
		Events: ta.history, Log: ta.log, Node: func() faults.Node { return ta.view.Load().faults() }, Changed: func() {}})
	ta.prober.MemoryLimits = func() (has, known bool) { d.calls.Add(1); return false, true }
	ta.hardware.Mismatch = func(context.Context) (string, error) { d.calls.Add(1); return "", nil }
	if err := ta.newSampling(d, ta.view.Load().config.Usage); err != nil {
		t.Fatal(err)
	}
	ta.connect()
	ta.sampling.Round(t.Context())
	before := d.calls.Load()
	for range 100 {
		scrapeOf(t, ta.Agent)
		page.NodeOf(ta.reader.Take(time.Now()))
	}
	if after := d.calls.Load(); before == 0 || after != before {
		t.Errorf("the driver was asked %d times before and %d times by 100 scrapes", before, after-before)
	}
}

// BenchmarkAgentScrape is a scrape of 16 GPUs with 46 jobs each: the judgement
// of each GPU, the job table, the last samples, and the text.
func BenchmarkAgentScrape(b *testing.B) {
	ta, _ := benchAgent(b, 1000)
	node := &fullNode{}
	for g := range 16 {
		var list []gpu.DeviceProcess
		for _, r := range ta.jobs.Running() {
			if r.GPU == uuid(g) {
				pid := r.Starter.PID + 10000
				ta.proc.Add(proctree.Process{PID: pid, Parent: r.Starter.PID, Comm: "job", UID: 1000, Started: 1})
				list = append(list, gpu.DeviceProcess{PID: pid, Memory: gpu.Known(gpu.Bytes(500 * mib)), MPSClient: true})
			}
		}
		node.readings = append(node.readings, gpu.Reading{GPU: uuid(g), Index: g, Use: gpu.Use{
			Memory: gpu.Known(gpu.MemoryUse{Total: 32768 * mib, Used: 30000 * mib}), Processes: gpu.Known(list),
			SMActivity: gpu.Known(gpu.Activity{Ratio: 0.8}),
		}})
	}
	if err := ta.newSampling(node, ta.view.Load().config.Usage); err != nil {
		b.Fatal(err)
	}
	ta.connect()
	ta.sampling.Round(b.Context())
	ta.sampling.Round(b.Context())
	text := scrapeOf(b, ta.Agent)
	if n := strings.Count(text, "\ngpuslot_slot_sm_seconds_total{"); n != 16*46 {
		b.Fatalf("%d slots", n)
	}
	h, err := ta.metrics.Handler(metrics.Web{Ready: func() bool { return true }})
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		ta.sampling.Round(b.Context()) // what is older than three seconds is not shown
		b.StartTimer()
		begin := time.Now()
		h.ServeHTTP(nobodyReads{}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(len(text)), "bytes/scrape")
}

// nobodyReads is a reply that costs nothing.
type nobodyReads struct{}

func (nobodyReads) Header() http.Header         { return http.Header{} }
func (nobodyReads) WriteHeader(int)             {}
func (nobodyReads) Write(b []byte) (int, error) { return len(b), nil }

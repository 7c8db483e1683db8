package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// busy is a node with so many slots on each GPU, everything known.
func busy(gpus, slots int) moment {
	s := moment{Usage: Usage{Sampled: time.Unix(1760000000, 0)}}
	s.Planned, s.Rounds = true, 1
	for g := range gpus {
		u := gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", g))
		d := usage.Device{GPU: u}
		s.GPUs = append(s.GPUs, status.GPU{Jobs: make([]status.Job, slots), GPU: &plan.GPU{
			UUID: u, Index: g, Name: "NVIDIA H100 80GB HBM3", PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", g)),
			Mode: config.ModeMPS, Memory: 81559, Shares: slots,
		}})
		var owners []usage.Owner
		for i := range slots {
			name := fmt.Sprintf("slot%d_%d", g+1, i+1)
			owners = append(owners, usage.OwnerSlot)
			x := slot(name, d, usage.MethodMPS, 1, gpu.Known(gibibyte))
			x.Budget, x.Admitted, x.Labels = gpu.Known(gibibyte), s.Usage.Sampled, JobLabels{ID: fmt.Sprintf("%d.%d", 4000+i, g), VO: "atlas"}
			s.Usage.Slots = append(s.Usage.Slots, x)
			s.Usage.Counters = append(s.Usage.Counters, counters(name, d, between(100.25, 1234.5678, 2000.125), between(12345.6, 23456.789, 34567.8)))
		}
		s.Usage.Devices = append(s.Usage.Devices, usage.DeviceUsage{
			Device: d, Memory: gpu.Known(gpu.MemoryUse{Total: 80 * gibibyte, Used: 60 * gibibyte}), Processes: processes(owners...), UnownedMemory: gpu.Known(gpu.Bytes(0)),
			Method: usage.MethodMPS, ActivitySource: "gpm", Power: gpu.Known(512.5),
			Total: usage.DeviceTotals{Sampled: 1e5, SM: gpu.Known(7e4), Busy: gpu.Known(9e4), UnattributedSM: gpu.Known(12.5), Energy: gpu.Known(1e7), UnattributedEnergy: gpu.Known(1e5)},
		})
	}
	return s
}

// discard counts what is written.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { d.n += len(b); return len(b), nil }

// BenchmarkScrape is one scrape from snapshot to text, plain and compressed, as
// the listener serves it. It prints the median besides the mean, and per slot.
func BenchmarkScrape(b *testing.B) {
	for _, c := range []struct {
		gpus, slots int
		encoding    string
	}{{8, 8, ""}, {8, 8, "gzip"}, {16, 0, ""}, {16, 12, ""}, {16, 24, ""}, {16, 48, ""}, {16, 48, "gzip"}} {
		b.Run(fmt.Sprintf("%dx%d%s", c.gpus, c.slots, c.encoding), func(b *testing.B) {
			s := busy(c.gpus, c.slots)
			h, err := newTest(s).Handler(Web{Ready: func() bool { return true }})
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept-Encoding", c.encoding)
			var took []time.Duration
			w := &discard{}
			b.ReportAllocs()
			for b.Loop() {
				w = &discard{header: http.Header{}}
				begin := time.Now()
				h.ServeHTTP(w, r)
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
			b.ReportMetric(float64(w.n), "bytes/scrape")
			debug.FreeOSMemory()
		})
	}
}

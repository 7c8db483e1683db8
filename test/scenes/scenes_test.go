package scenes

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := site.Unstage(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestScenes plays what the demo shows with real control daemons, on one node,
// one after the other.
func TestScenes(t *testing.T) { playScenes(t, site.Real, "../../docs/examples/v100s-8.json") }

// TestSimulatedJobs plays what the demo shows with simulated daemons and
// servers, on one node of two kinds of GPU.
func TestSimulatedJobs(t *testing.T) {
	playScenes(t, site.Sim, "../site/testdata/v100s-2-h100.json")
}

func playScenes(t *testing.T, leg site.Leg, inventory string) {
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	inv, err := gpu.ReadInventory(inventory)
	must(t, err)
	s := startSite(t, site.Options{Leg: leg, Inventory: &inv})
	must(t, s.WaitAccept(t.Context(), len(inv.GPUs)))
	for _, scene := range All() {
		if scene.Leg != leg {
			continue
		}
		t.Run(scene.Name, func(t *testing.T) {
			begin := time.Now()
			st := &Stage{Site: s, Inventory: inv, Report: &Report{Out: t.Output()}}
			must(t, scene.Play(t.Context(), st))
			done(t, st)
			t.Logf("leg %s, %s: %s", leg, scene.Name, time.Since(begin).Round(time.Second))
		})
	}
}

func startSite(t *testing.T, o site.Options) *site.Site {
	t.Helper()
	o.Progress = t.Output()
	s, err := site.Start(t.Context(), o)
	must(t, err)
	t.Logf("leg %s, control daemon %s", s.Leg, s.DriverVersion)
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			log, _ := s.Journal(ctx, "gpuslotd.service")
			t.Logf("journal of gpuslotd:\n%s", log)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

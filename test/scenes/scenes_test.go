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

// TestScenes plays what the demo shows, on one node, one after the other.
// Leg: real control daemons; no server can come up without a GPU.
func TestScenes(t *testing.T) {
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	inv, err := gpu.ReadInventory("../../docs/examples/v100s-8.json")
	if err != nil {
		t.Fatal(err)
	}
	s := startSite(t, site.Options{Inventory: &inv})
	if err := s.WaitAccept(t.Context(), len(inv.GPUs)); err != nil {
		t.Fatal(err)
	}
	for _, scene := range All() {
		t.Run(scene.Name, func(t *testing.T) {
			begin := time.Now()
			st := &Stage{Site: s, Inventory: inv, Report: &Report{Out: t.Output()}}
			if err := scene.Play(t.Context(), st); err != nil {
				t.Fatal(err)
			}
			for _, f := range st.Failed {
				t.Error(f)
			}
			t.Logf("%s: %s", scene.Name, time.Since(begin).Round(time.Second))
		})
	}
}

func startSite(t *testing.T, o site.Options) *site.Site {
	t.Helper()
	o.Progress = t.Output()
	s, err := site.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
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

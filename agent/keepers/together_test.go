package keepers

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: Keeper may be called while a sample is judged.
func TestTogether(t *testing.T) {
	w := New(Finder{Node: starter.Node{FS: process.FS{Root: t.TempDir()}}}, func(process.ID) bool { return true })
	together.Methods(t, w, usage.Device{}, GPU{}, together.Except{"Look", "Count", "Outside", "May"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			w.Keeper(usage.Device{})
		}
	}()
	gpus := []GPU{{UUID: "GPU-0"}}
	for range 100 {
		w.Look(&usage.Snapshot{}, gpus, []jobs.Job{}, 0)
		w.Count([]rules.Job{}, config.Budgets{})
	}
	<-done
}

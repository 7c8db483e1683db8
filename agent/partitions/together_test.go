package partitions

import (
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods may be called at one time, Offer by who has the job table's view. The maker of partitions is
// called for one GPU at a time, and its notes are read beside it.
func TestTogether(t *testing.T) {
	p := at(filepath.Join(t.TempDir(), "p"))
	daemon, s := process.ID{PID: 1}, starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}
	together.Methods(t, p, s, uuid(0), daemon, together.Except{"Have", "Offer", "Take"},
		together.Call(func() { p.jobs.Look(func(v *jobs.View) { p.Offer(v, s, uuid(0), daemon) }) }),
		together.Call(func() {
			if undo := p.Take(s, uuid(0), "a"); undo != nil {
				undo()
			}
		}),
		together.Call(func() { _ = p.note(set{GPU: uuid(0), Daemon: daemon, IDs: []string{"a", "b"}, SMs: 32}) }),
		together.Call(func() { p.of(uuid(0), daemon) }))
}

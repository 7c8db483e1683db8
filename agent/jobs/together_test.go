package jobs

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods of the table may be called at one time.
func TestTogether(t *testing.T) {
	node := newNode()
	s := node.starter(1, "slot1_1")
	node.callers[7] = starter.Caller{Starter: s}
	table, hook := New(node), starter.Caller{Starter: s, Hook: true}
	together.Methods(t, table, hook, s, s.Slot, []starter.Starter{s}, uuid(0), []gpu.UUID{uuid(5)}, map[gpu.UUID]string{uuid(6): "it goes"},
		uint32(1000), 7, time.Time{}, api.Hold{Slot: s.Slot, Code: 1}, func(v *View) { v.On(uuid(0)) }, func(*View) []Job { return []Job{job(s, 0, 1000)} },
		Ads{Slots: map[string]condor.Slot{"slot1_1": {Name: "slot1_1@node"}}, EnforcedBy: func(gpu.UUID, gpu.MiB) string { return EnforcedByNone }},
		together.Except{"OfCaller"}, together.Call(func() {
			c := hook
			_, _, _ = table.OfCaller(&c)
		}))
}

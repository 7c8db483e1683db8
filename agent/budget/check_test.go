package budget

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// TestCheckReservations: what is not complete is not taken over.
func TestCheckReservations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *reservation)
		good   bool
	}{
		"complete":              {func(*reservation) {}, true},
		"ended":                 {func(r *reservation) { r.Soft = 0 }, true},
		"a part is kept":        {func(r *reservation) { r.Soft = 4095 }, true},
		"no GPU":                {func(r *reservation) { r.GPU = "GPU-1" }, false},
		"no cgroup":             {func(r *reservation) { r.Path = nil }, false},
		"no budget":             {func(r *reservation) { r.Hard, r.Soft = 0, 0 }, false},
		"a negative budget":     {func(r *reservation) { r.Hard = -1 }, false},
		"less than nothing":     {func(r *reservation) { r.Soft = -1 }, false},
		"more than the budget":  {func(r *reservation) { r.Soft = 4097 }, false},
		"no starter":            {func(r *reservation) { r.Starter.PID = 0 }, false},
		"the first process":     {func(r *reservation) { r.Starter.PID = 1 }, true},
		"one MiB is enough":     {func(r *reservation) { r.Hard, r.Soft = 1, 1 }, true},
		"a negative number":     {func(r *reservation) { r.Starter.PID = -1 }, false},
		"an empty path is none": {func(r *reservation) { r.Path = []starter.Cgroup{} }, false},
	} {
		r := reservation{GPU: "GPU-00000000-0000-4000-8000-000000000000", Hard: 4096, Soft: 4096,
			Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}, Path: []starter.Cgroup{{}}}
		whole := r
		c.change(&r)
		if err := checkReservations([]reservation{whole, r}); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

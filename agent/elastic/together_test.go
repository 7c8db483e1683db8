package elastic

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods of the group may be called at one time, Refuse by who has the
// job table's view.
func TestTogether(t *testing.T) {
	g, _, table, p := newGroup(2)
	s := starterOf(1)
	plans := 0
	together.Methods(t, g, site, wholeJob(1, time.Time{}), never, uuid(0), p, time.Now(), together.Except{"Refuse", "Follow"},
		together.Call(func() {
			table.Look(func(v *jobs.View) {
				plans++
				g.Refuse(v, s, &p, []gpu.UUID{uuid(0)}, plans%2 == 0)
			})
		}),
		together.Call(func() {
			for n := range 3 {
				g.Follow(planOf(n), plan.Plan{}, time.Now())
			}
		}))
}

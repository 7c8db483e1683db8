package budget

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods may be called at one time, while a job's budget changes.
func TestTogether(t *testing.T) {
	n := newNode(t)
	s := n.job(100, "slot1_1", 1000)
	j, other := n.table.HeldBy(s)[0], n.job(200, "slot1_2", 500)
	now := Conditions{Known: true, Has: true, Shared: func(gpu.UUID) bool { return true }, Every: time.Second}
	together.Methods(t, n.Limits, now, time.Now(), j, s, uuid(0), n.leaf(s), true, "watch", together.Except{"Run"},
		together.Call(func() { n.outside(j, 100, true, n.view.Leaf) }), together.Call(func() { n.budget(s, 2000) }), together.Call(func() { _ = n.Read() }),
		together.Call(func() {
			n.driver.Is(cgroups.Mood{Err: errors.New("no room")})
			n.Round(t.Context(), now)
			n.driver.Is(cgroups.Mood{Deaf: true})
			n.Round(t.Context(), now)
			n.driver.Is(cgroups.Mood{})
		}),
		together.Call(func() { // a job that comes and goes
			n.budget(other, 500)
			for _, held := range n.table.HeldBy(other) {
				n.Take(t.Context(), held, n.leaf(other))
			}
			n.EndReservation(t.Context(), other)
			n.table.Release(other, uuid(0))
		}))
	if n.driver.Overlapped() {
		t.Error("limits were changed and read at one time")
	}
}

package budget

import (
	"context"
	"testing"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/cgroups"
)

// TestWhoGetsALimit: a job with a budget, be it ever so small, on a GPU that is shared.
func TestWhoGetsALimit(t *testing.T) {
	for name, c := range map[string]struct {
		mib    int64
		shared bool
		want   bool
	}{
		"no budget": {0, true, false}, "the least budget": {1, true, true}, "a whole GPU": {4096, false, false},
	} {
		n, is := newNode(t), now()
		s := n.job(100, "slot1_1", c.mib)
		is.Shared = func(gpu.UUID) bool { return c.shared }
		if n.Round(t.Context(), is); n.Has(s, uuid(0)) != c.want {
			t.Errorf("%s: it has a limit %t", name, !c.want)
		}
	}
}

// TestEndReservationOfOneJob: the reservation of the job that ends goes, and no other.
func TestEndReservationOfOneJob(t *testing.T) {
	n := newNode(t)
	s, other := n.job(100, "slot1_1", 4096), n.job(200, "slot1_2", 2048)
	n.round()
	n.EndReservation(t.Context(), s)
	n.limits(n.leaf(s), "soft 0 hard 4096")
	n.limits(n.leaf(other), "soft 2048 hard 2048")
	n.limits(n.htcondor(), "soft 2048 hard max")
}

// TestOldProofOfANewLimit: a limit of another size is not proved by what was read of the old one.
func TestOldProofOfANewLimit(t *testing.T) {
	n := newNode(t)
	s := n.job(100, "slot1_1", 4096)
	n.round()
	n.budget(s, 5120)
	n.driver.Is(cgroups.Mood{Err: context.DeadlineExceeded})
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if n.Round(late, now()); n.wall() == jobs.EnforcedByCgroup {
		t.Error("a limit counts that the driver has not taken yet")
	}
}

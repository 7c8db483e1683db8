package budget

import (
	"context"
	"errors"
	"path/filepath"
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

// TestEndReservationOfOneJob: the reservation of the job that ends goes, be it ever so small, and no other.
func TestEndReservationOfOneJob(t *testing.T) {
	n := newNode(t)
	s, other, least := n.job(100, "slot1_1", 4096), n.job(200, "slot1_2", 2048), n.job(300, "slot1_3", 1)
	n.round()
	n.EndReservation(t.Context(), s)
	n.EndReservation(t.Context(), least)
	n.limits(n.leaf(least), "soft 0 hard 1")
	n.limits(n.leaf(s), "soft 0 hard 4096")
	n.limits(n.leaf(other), "soft 2048 hard 2048")
	n.limits(n.htcondor(), "soft 2048 hard max")
}

// TestNothingLeft: a limit whose reservation and cgroup are gone is forgotten.
func TestNothingLeft(t *testing.T) {
	n := newNode(t)
	s := n.job(100, "slot1_1", 4096)
	n.round()
	n.EndReservation(t.Context(), s)
	n.gone(s)
	n.round()
	if n.Has(s, uuid(0)) {
		t.Error("the limit is there")
	}
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

// TestWide: the limit of a job's slice counts for all below where it was read back, and adds up what the job's own has.
func TestWide(t *testing.T) {
	for name, c := range map[string]struct {
		soft, hard gpu.MiB // of the slice; 0 for those that were set
		reserved   gpu.MiB // the job's own soft limit
		was, want  bool
	}{
		"as it was set":              {0, 0, 4096, false, true},
		"adds up nothing":            {2048, 4096, 4096, true, false},
		"is somebody else's":         {8192, 8192, 4096, true, false},
		"no reservation, was wide":   {0, 0, 0, true, true},
		"no reservation, was not so": {0, 0, 0, false, false},
	} {
		n := newNode(t)
		s := n.job(100, "slot1_1", 4096)
		n.round()
		if c.hard != 0 {
			err := n.driver.SetMemoryLimits(t.Context(), uuid(0), filepath.Dir(n.leaf(s)), gpu.Bytes(c.soft.Bytes()), gpu.Bytes(c.hard.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
		}
		l := n.all()[0]
		l.wide, l.Soft = c.was, c.reserved
		if n.widen(t.Context(), &l); l.wide != c.want {
			t.Errorf("%s: wide %t", name, l.wide)
		}
	}
}

// unread is a driver that does not say the limits of a slice.
type unread struct {
	*counted
	err error
}

func (d unread) MemoryLimits(ctx context.Context, u gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	if filepath.Ext(cgroup) == ".slice" {
		return gpu.MemoryLimits{}, d.err
	}
	return d.counted.MemoryLimits(ctx, u, cgroup)
}

// TestUnreadSlice: what is not known of a slice is not written over, and its limit does not count.
func TestUnreadSlice(t *testing.T) {
	n := newNode(t)
	n.job(100, "slot1_1", 4096)
	n.round()
	d := unread{&counted{Driver: n.driver}, errors.New("no answer")}
	n.Limits.driver = d
	l := n.all()[0]
	if err := n.narrow(t.Context(), l); !errors.Is(err, d.err) || d.count() > 0 {
		t.Errorf("%v, limits were set %d times", err, d.count())
	}
	if n.widen(t.Context(), &l); l.wide || d.count() > 0 {
		t.Errorf("wide %t, limits were set %d times", l.wide, d.count())
	}
}

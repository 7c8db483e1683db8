package budget

import (
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestLimitOfASlice: it follows the job's budget, is set again after others changed it, by the
// next agent too, and goes with the job's.
func TestLimitOfASlice(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.limits(filepath.Dir(c.leaf(st)), "soft 4096 hard 4096")
	for _, budget := range []gpu.MiB{5120, 2048} {
		c.budget(st, int64(budget))
		c.round()
		want := map[gpu.MiB]string{5120: "soft 5120 hard 5120", 2048: "soft 2048 hard 2048"}[budget]
		c.limits(c.leaf(st), want)
		c.limits(filepath.Dir(c.leaf(st)), want)
	}
	slice := filepath.Dir(c.leaf(st))
	if err := c.driver.SetMemoryLimits(t.Context(), uuid(0), slice, 2048<<20, gpu.Unlimited); err != nil {
		t.Fatal(err)
	}
	c.again()
	c.round()
	c.limits(filepath.Dir(c.leaf(st)), "soft 2048 hard 2048")
	if l, ok := c.of(jobs.KeyOf(st, uuid(0))); !ok || !l.wide {
		t.Errorf("%+v", l)
	}
	c.EndReservation(t.Context(), st)
	c.limits(filepath.Dir(c.leaf(st)), "soft 0 hard 2048")
	c.round()
	if l, ok := c.of(jobs.KeyOf(st, uuid(0))); !ok || !l.wide {
		t.Errorf("at its end: %+v", l)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.limits(filepath.Dir(c.leaf(st)), "soft 0 hard max")
}

// TestSliceRefused: the job's own cgroup is limited all the same.
func TestSliceRefused(t *testing.T) {
	c := newNode(t)
	c.driver.Is(cgroups.Mood{Flat: true, Refuses: ".slice"})
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	if l, _ := c.of(jobs.KeyOf(st, uuid(0))); l.wide || c.wall() != jobs.EnforcedByCgroup {
		t.Errorf("wall %s, %+v", c.wall(), l)
	}
}

// TestLimitWithoutDescriptors: a lack of file descriptors is no end of a job. Its limits stay, and
// where its processes are is not known.
func TestLimitWithoutDescriptors(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	job := c.table.Running()[0]
	proctree.WithoutDescriptors(t, func() {
		c.round()
		if left := c.Outside(job, []int{1100}, true); len(left) > 0 || c.wall() != jobs.EnforcedByNone {
			t.Errorf("a process that cannot be looked at: left %v, wall %s", left, c.wall())
		}
	})
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	if left := c.Outside(job, []int{1100}, true); len(left) > 0 || c.wall() != jobs.EnforcedByCgroup {
		t.Errorf("afterwards: left %v, wall %s", left, c.wall())
	}
}

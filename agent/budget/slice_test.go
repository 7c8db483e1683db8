package budget

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
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
		if left, _ := c.Outside(job, []int{1100}, true); len(left) > 0 || c.wall() != jobs.EnforcedByNone {
			t.Errorf("a process that cannot be looked at: left %v, wall %s", left, c.wall())
		}
	})
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	if left, _ := c.Outside(job, []int{1100}, true); len(left) > 0 || c.wall() != jobs.EnforcedByCgroup {
		t.Errorf("afterwards: left %v, wall %s", left, c.wall())
	}
}

// controllers writes those that the job's slice and its cgroup have.
func (n *node) controllers(s starter.Starter, slice, leaf string) {
	n.t.Helper()
	put(n.t, filepath.Join(filepath.Dir(n.leaf(s)), "cgroup.controllers"), slice)
	put(n.t, filepath.Join(n.leaf(s), "cgroup.controllers"), leaf)
	put(n.t, filepath.Join(filepath.Dir(n.leaf(s)), "cgroup.subtree_control"), "")
}

// off says whether a job is known for switching off the controller of its limit.
func (n *node) off(s starter.Starter) bool {
	_, off := n.Outside(jobs.Job{Starter: s, GPU: uuid(0)}, nil, true)
	return off
}

// TestSwitchedOff: a job that switches off the controller of its limit is known for it until it ends, also
// when its limit stands again. Neither then nor at its start does that count for its GPU. What comes from
// above does.
func TestSwitchedOff(t *testing.T) {
	for _, tt := range []struct {
		name        string
		slice, leaf string
		// had: it had its limit before.
		had, unbound, closes bool
	}{
		{"it had its limit", "cpu dmem memory\n", "cpu memory\n", true, true, false},
		{"the other controller", "misc\n", "", true, true, false},
		{"at its start", "cpu dmem memory\n", "cpu memory\n", false, false, false},
		{"switched off above", "cpu memory\n", "cpu memory\n", true, false, true},
		{"above, at its start", "cpu memory\n", "cpu memory\n", false, false, true},
		{"for another reason", "dmem misc\n", "dmem misc\n", true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newNode(t)
			st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
			name := filepath.Base(c.leaf(st))
			if tt.had {
				c.controllers(st, tt.slice, tt.slice)
				c.round()
				if err := c.driver.Drop(c.leaf(st)); err != nil {
					t.Fatal(err)
				}
			}
			c.controllers(st, tt.slice, tt.leaf)
			c.driver.Is(cgroups.Mood{Refuses: name})
			for range 3 {
				c.round()
			}
			why, _ := c.Unlimited(uuid(0))
			warned := strings.Contains(c.warnings(), "not held by limits")
			if warned != tt.closes || (why != "") != tt.closes {
				t.Errorf("the GPU's jobs have no limit: %q; warnings: %s", why, c.warnings())
			}
			if got := c.off(st); got != tt.unbound || c.off(other) {
				t.Errorf("unbound: %t", got)
			}
			if n := strings.Count(c.said.String(), "switched off the controller"); (n == 1) == tt.closes || n > 1 {
				t.Errorf("told %d times: %s", n, c.said)
			}
			c.limits(c.leaf(other), "soft 2048 hard 2048")

			c.driver.Is(cgroups.Mood{})
			c.round()
			c.limits(c.leaf(st), "soft 4096 hard 4096")
			if c.off(st) != tt.unbound {
				t.Error("forgotten while it runs")
			}
			c.end(st)
			c.round()
			if c.off(st) {
				t.Error("known after its end")
			}
		})
	}
}

// TestPassOn: the controllers that a slice has are passed on to the job's cgroup before it is limited.
func TestPassOn(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.controllers(st, "cpu dmem memory\n", "cpu memory\n")
	file := filepath.Join(filepath.Dir(c.leaf(st)), "cgroup.subtree_control")
	c.round()
	if got, err := os.ReadFile(file); err != nil || string(got) != "+dmem" {
		t.Errorf("written: %q, %v", got, err)
	}
	if c.off(st) {
		t.Error("what HTCondor does not pass on, the job did not switch off")
	}
	if err := c.driver.Drop(c.leaf(st)); err != nil {
		t.Fatal(err)
	}
	c.round()
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	if why, _ := c.Unlimited(uuid(0)); why != "" || !c.off(st) {
		t.Errorf("it switched the controller off, and the agent on again: unbound %t, %s", c.off(st), why)
	}
}

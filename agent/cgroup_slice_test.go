package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// slice is the cgroup above a job's.
func (c *cgroupAgent) slice(st starter.Starter) string { return filepath.Dir(c.leaf(st)) }

// samples takes two samples, a grace time apart, that show a process of a job on the GPU.
func (c *cgroupAgent) samples(pid int, used gpu.Measured[gpu.Bytes]) []api.Hold {
	c.t.Helper()
	r := gpu.Reading{GPU: uuid(0), At: time.Now()}
	r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: pid, Memory: used, MPSClient: true}})
	c.reads(&fakeUsage{[]gpu.Reading{r}})
	c.sampledAt(time.Now())
	c.sampledAt(time.Now().Add(c.view.Load().config.Budgets.Grace))
	c.ender.Wait()
	return c.jobs.Holds()
}

// TestLeftItsCgroup: a process of a job that goes into another cgroup of the job's slice stays
// below the driver's limit, where limits bind from above. Elsewhere its job is held, and the
// cgroup's limit is not shown as what guards it.
func TestLeftItsCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		// flat is the driver's back-end that adds nothing up.
		flat bool
		// below is where the process is, in or beside the job's slice.
		below string
		used  gpu.Measured[gpu.Bytes]
		held  bool
		wall  bool
	}{
		"in its cgroup":                    {below: "scope", wall: true},
		"in its cgroup, no sums":           {below: "scope", flat: true, wall: true},
		"below its cgroup":                 {below: "scope/mine", flat: true, wall: true},
		"in the slice":                     {below: "slice/mine", wall: true},
		"in the slice, no sums":            {below: "slice/mine", flat: true, held: true},
		"in the slice, no sums, in budget": {below: "slice/mine", flat: true, used: gpu.Known(gpu.Bytes(1 << 20)), held: true},
		"a login":                          {below: "login"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newCgroupAgent(t)
			a.driver.Is(cgroups.Mood{Flat: c.flat})
			st := a.job(100, "slot1_1", 4096)
			a.round()
			a.limits(a.leaf(st), "soft 4096 hard 4096")
			scope := proctree.CgroupOf(st.Slot)
			slice := filepath.Dir(scope)
			in := strings.NewReplacer("scope", scope, "slice", slice, "login", strings.TrimSuffix(slice, ".slice")+"/sshd.slice/sshd.scope").Replace(c.below)
			a.proc.Add(proctree.Process{PID: 2100, Parent: st.PID, Comm: "train", Cgroup: in})
			holds := a.samples(2100, c.used)
			if c.held != (len(holds) == 1 && holds[0].Code == api.CodeLeftCgroup && strings.Contains(holds[0].Reason, "process 2100 of the job computes")) || len(holds) > 1 {
				t.Errorf("holds: %+v", holds)
			}
			if got := a.wall(0); (got == jobs.EnforcedByCgroup) != c.wall {
				t.Errorf("wall %s", got)
			}
			a.proc.End(2100)
			if a.samples(st.PID+1000, c.used); a.wall(0) != jobs.EnforcedByCgroup {
				t.Errorf("wall %s when no process is outside any more", a.wall(0))
			}
		})
	}
}

// TestRemovedItsCgroup: a job whose processes all left may remove its cgroup. Its slice keeps
// the limit, and the job is held.
func TestRemovedItsCgroup(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Comm: "train", Cgroup: filepath.Dir(proctree.CgroupOf(st.Slot)) + "/mine"})
	if err := os.Rename(c.leaf(st), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.round()
	}
	c.limits(c.slice(st), "soft 0 hard 4096")
	if holds := c.samples(st.PID+1000, gpu.Known(gpu.Bytes(1<<20))); len(holds) != 1 || holds[0].Code != api.CodeLeftCgroup || c.wall(0) == jobs.EnforcedByCgroup {
		t.Errorf("wall %s, holds %+v", c.wall(0), holds)
	}
}

// TestControllerKeptFromACgroup: what the account of a job keeps from it does not count for the GPU, because the job's
// supervisor passed it on. Without supervisors nothing does.
func TestControllerKeptFromACgroup(t *testing.T) {
	for _, supervise := range []bool{true, false} {
		c := newCgroupAgent(t)
		c.view.Load().config.HTCondor.Supervise = supervise
		st := c.job(100, "slot1_1", 4096)
		for file, text := range map[string]string{"dmem.max": "", "cgroup.controllers": "dmem\n"} {
			if err := os.WriteFile(filepath.Join(c.slice(st), file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c.driver.Is(cgroups.Mood{Refuses: filepath.Base(c.leaf(st))})
		c.round()
		if why, _ := c.Agent.limits.Unlimited(uuid(0)); (why == "") != supervise {
			t.Errorf("with supervise = %t the GPU's jobs have no limit: %q", supervise, why)
		}
	}
}

package budget

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
		if left, _, _ := c.outside(job, 1100, true, c.view.Leaf); len(left) > 0 || c.wall() != jobs.EnforcedByNone {
			t.Errorf("a process that cannot be looked at: left %v, wall %s", left, c.wall())
		}
	})
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	if left, _, _ := c.outside(job, 1100, true, c.view.Leaf); len(left) > 0 || c.wall() != jobs.EnforcedByCgroup {
		t.Errorf("afterwards: left %v, wall %s", left, c.wall())
	}
}

// TestOutsideNotKnownYet: while the kernel does not say where a job's process is, the job has not left, and what the
// driver counts in its cgroup is not all that it uses.
func TestOutsideNotKnownYet(t *testing.T) {
	c := newNode(t)
	c.job(100, "slot1_1", 4096)
	c.round()
	job := c.table.Running()[0]
	notYet := func(int) (starter.Leaf, error) { return starter.Leaf{}, ErrNotYet }
	left, off, unclear := c.outside(job, 1100, true, notYet)
	used := c.Used(job.Starter, job.GPU, time.Now())
	if len(left) > 0 || off || !unclear || c.wall() != jobs.EnforcedByNone || used.Known {
		t.Errorf("left %v, off %t, unclear %t, wall %s", left, off, unclear, c.wall())
	}
	if _, _, unclear := c.outside(job, 1100, true, c.view.Leaf); unclear || c.wall() != jobs.EnforcedByCgroup {
		t.Errorf("when it is known: unclear %t, wall %s", unclear, c.wall())
	}
	job.Starter.PID = 7 // of a job without a limit, where none is set
	if _, _, unclear := c.outside(job, 1100, false, notYet); unclear {
		t.Errorf("a job whose processes may be anywhere: unclear %t", unclear)
	}
}

// TestTakenFromHTCondor: a process that the service manager of its account took out of HTCondor's cgroups has left the
// job's. What the driver counts there is not all then.
func TestTakenFromHTCondor(t *testing.T) {
	c := newNode(t)
	c.job(100, "slot1_1", 4096)
	c.round()
	job := c.table.Running()[0]
	const scope = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"
	c.proc.Add(proctree.Process{PID: 1100, Parent: 100, Comm: "train", UID: 1000, Cgroup: scope})
	left, off, unclear := c.outside(job, 1100, true, c.view.Leaf)
	if !slices.Equal(left, []int{1100}) || off || unclear || c.wall() != jobs.EnforcedByNone {
		t.Errorf("left %v, off %t, unclear %t, wall %s", left, off, unclear, c.wall())
	}
}

// passes makes the files of the controllers that a job's slice and its cgroup have, as the kernel does.
func (n *node) passes(s starter.Starter, slice, leaf string) {
	n.t.Helper()
	put(n.t, filepath.Join(filepath.Dir(n.leaf(s)), "cgroup.controllers"), slice+"\n")
	for dir, has := range map[string]string{filepath.Dir(n.leaf(s)): slice, n.leaf(s): leaf} {
		for _, name := range controllers {
			file := filepath.Join(dir, name+".max")
			_, err := os.Stat(file)
			switch there, want := err == nil, slices.Contains(strings.Fields(has), name); {
			case want && !there:
				put(n.t, file, "")
			case !want && there: // moved, because a file system may use an inode again at once
				if err := os.Rename(file, filepath.Join(n.t.TempDir(), "gone")); err != nil {
					n.t.Fatal(err)
				}
			}
		}
	}
}

// off says whether a job is known for switching off the controller of its limit.
func (n *node) off(s starter.Starter) bool {
	off, _ := n.Outside(jobs.Job{Starter: s, GPU: uuid(0)}, true)
	return off
}

// TestSwitchedOff: a job that switches off the controller of its limit is known for it until it ends, also when it
// is on again. Its limit is not set again, its reservation is given back, and its slice keeps the hard limit.
// Neither then nor at its start does that count for its GPU. What comes from above does.
func TestSwitchedOff(t *testing.T) {
	for _, tt := range []struct {
		name string
		// slice and leaf are the controllers that its slice and its cgroup have then.
		slice, leaf string
		// had: it had its limit before, where both have "dmem misc".
		had, again, closes bool
	}{
		{"it had its limit", "dmem misc", "misc", true, false, false},
		{"the other controller", "dmem misc", "dmem", true, false, false},
		{"off and on", "dmem misc", "dmem misc", true, true, false},
		{"at its start", "dmem", "", false, false, false},
		{"switched off above", "misc", "misc", true, false, true},
		{"above, at its start", "", "", false, false, true},
		{"for another reason", "dmem misc", "dmem misc", true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newNode(t)
			st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
			if tt.had {
				c.passes(st, "dmem misc", "dmem misc")
				c.round()
				if err := c.driver.Drop(c.leaf(st)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.again {
				c.passes(st, tt.slice, "")
			}
			c.passes(st, tt.slice, tt.leaf)
			if !tt.again {
				c.driver.Is(cgroups.Mood{Refuses: filepath.Base(c.leaf(st))})
			}
			for range 3 {
				c.round()
			}
			why, _ := c.Unlimited(uuid(0))
			warned := strings.Contains(c.warnings(), "not held by limits")
			if warned != tt.closes || (why != "") != tt.closes {
				t.Errorf("the GPU's jobs have no limit: %q; warnings: %s", why, c.warnings())
			}
			unbound := tt.had && !tt.closes
			if got := c.off(st); got != unbound || c.off(other) {
				t.Errorf("unbound: %t", got)
			}
			if n := strings.Count(c.said.String(), "keeps the controller"); (n == 1) == tt.closes || n > 1 {
				t.Errorf("told %d times: %s", n, c.said)
			}
			c.limits(c.leaf(other), "soft 2048 hard 2048")

			c.driver.Is(cgroups.Mood{})
			c.passes(st, "dmem misc", "dmem misc")
			c.round()
			if unbound {
				c.limits(filepath.Dir(c.leaf(st)), "soft 0 hard 4096")
				c.limits(c.htcondor(), "soft 2048 hard max")
				if err := c.Take(t.Context(), c.table.HeldBy(st)[0], proctree.CgroupOf(st.Slot)); err == nil {
					t.Error("its limit was set again")
				}
			} else {
				c.limits(c.leaf(st), "soft 4096 hard 4096")
			}
			if c.off(st) != unbound {
				t.Error("forgotten while it runs")
			}
			c.gone(st)
			c.end(st)
			c.round()
			if c.off(st) {
				t.Error("known after its end")
			}
		})
	}
}

// TestSwitchedOffAtTheEnd: a job that switches off the controller just before its end leaves no reservation behind.
func TestSwitchedOffAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*node, starter.Starter){
		"its supervisor tells of it": func(c *node, st starter.Starter) { c.EndReservation(t.Context(), st) },
		"its starter ends":           func(c *node, st starter.Starter) { c.end(st) },
		"its limit was set meanwhile": func(c *node, st starter.Starter) {
			if err := c.driver.SetMemoryLimits(t.Context(), uuid(0), c.leaf(st), 4096<<20, 4096<<20); err != nil {
				t.Error(err)
			}
			c.round()
		},
		"the node is quiesced": func(c *node, _ starter.Starter) {
			if err := c.Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNode(t)
			st := c.job(100, "slot1_1", 4096)
			c.passes(st, "dmem", "dmem")
			c.round()
			if err := c.driver.Drop(c.leaf(st)); err != nil {
				t.Fatal(err)
			}
			c.passes(st, "dmem", "")
			c.passes(st, "dmem", "dmem")
			end(c, st)
			c.gone(st)
			c.round()
			c.round()
			c.limits(c.htcondor(), "soft 0 hard max")
		})
	}
}

// TestNothingIsWritten: gpuslotd writes to no file in a job's slice, where a write can wait in the kernel as long
// as the job likes. A job that never had its limit for that is not held for what it runs beside its cgroup. Where
// no supervisor passes controllers on, jobs have no limit.
func TestNothingIsWritten(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	slice := filepath.Dir(c.leaf(st))
	file := filepath.Join(slice, "cgroup.subtree_control")
	put(t, file, "cpu\n")
	c.passes(st, "dmem", "")
	c.driver.Is(cgroups.Mood{Refuses: filepath.Base(c.leaf(st))})
	c.round()
	if got, err := os.ReadFile(file); err != nil || string(got) != "cpu\n" {
		t.Errorf("written: %q, %v", got, err)
	}
	j := c.table.HeldBy(st)[0]
	if err := c.Take(t.Context(), j, proctree.CgroupOf(st.Slot)); err == nil || !strings.Contains(err.Error(), "the controller dmem") {
		t.Errorf("its supervisor hears %v", err)
	}
	c.proc.Add(proctree.Process{PID: 2100, Parent: st.PID, Comm: "pilot", Cgroup: filepath.Dir(proctree.CgroupOf(st.Slot)) + "/mine"})
	if left, off, _ := c.outside(j, 2100, true, c.view.Leaf); len(left) > 0 || off {
		t.Errorf("left %v, off %t", left, off)
	}
	if why, _ := c.Unlimited(uuid(0)); why != "" {
		t.Errorf("the GPU: %s", why)
	}
	without := now()
	without.Supervised = false
	c.Round(t.Context(), without)
	if all := c.warnings(); !strings.Contains(all, "which the supervisor passes on") {
		t.Errorf("without supervisors the warnings are: %s", all)
	}
}

// TestRemadeCgroup: what a user made in the place of HTCondor's cgroup gets no limit, which the user could change.
// That does not count for the GPU.
func TestRemadeCgroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes directories of other accounts")
	}
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	if err := os.Rename(c.leaf(st), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(c.leaf(st), 0o755), os.Chown(c.leaf(st), 1001, 1001)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.round()
	}
	c.limits(c.leaf(st), gpu.ErrNoMemoryLimits.Error())
	c.limits(filepath.Dir(c.leaf(st)), "soft 0 hard 4096")
	if why, _ := c.Unlimited(uuid(0)); why != "" || c.wall() == jobs.EnforcedByCgroup {
		t.Errorf("wall %s, the GPU: %s", c.wall(), why)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // a look may take longer than it waits
		if left, _, _ := c.outside(c.table.HeldBy(st)[0], 1100, true, c.view.Leaf); len(left) == 1 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("left %v", left)
		}
	}
}

// TestSwitchedMeanwhile: a job's account that switches the controller while the limit is set does not close the GPU.
// A start that is asked for again does not hide that it was switched.
func TestSwitchedMeanwhile(t *testing.T) {
	for name, had := range map[string]string{"on, off, on": "dmem", "off, on": ""} {
		t.Run(name, func(t *testing.T) {
			c := newNode(t)
			d := &counted{Driver: c.driver, entered: make(chan struct{}), goOn: make(chan struct{})}
			c.Limits.driver = d
			st := c.job(100, "slot1_1", 4096)
			c.passes(st, "dmem", had)
			c.driver.Is(cgroups.Mood{Refuses: filepath.Base(c.leaf(st))})
			done := make(chan struct{})
			go func() { c.round(); close(done) }()
			for open := true; open; {
				select {
				case <-d.entered:
					c.passes(st, "dmem", "")
					c.passes(st, "dmem", "dmem")
					d.goOn <- struct{}{}
				case <-done:
					open = false
				}
			}
			if why, _ := c.Unlimited(uuid(0)); why != "" || c.off(st) {
				t.Errorf("off %t, the GPU: %s", c.off(st), why)
			}
		})
	}
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.passes(st, "dmem", "dmem")
	c.round()
	c.passes(st, "dmem", "")
	c.passes(st, "dmem", "dmem")
	if err := c.Take(t.Context(), c.table.HeldBy(st)[0], proctree.CgroupOf(st.Slot)); err == nil || !c.off(st) {
		t.Errorf("a start hides it: %v", err)
	}
	c.round()
	c.limits(c.htcondor(), "soft 0 hard max")
}

// TestSwitchedOnMeanwhile: no limit is set while the controller is off, and one that is set counts for nothing where
// the account switched the controller off and on meanwhile.
func TestSwitchedOnMeanwhile(t *testing.T) {
	c := newNode(t)
	d := &counted{Driver: c.driver, entered: make(chan struct{}), goOn: make(chan struct{})}
	c.Limits.driver = d
	st := c.job(100, "slot1_1", 4096)
	c.passes(st, "dmem", "")
	done := make(chan struct{})
	go func() { c.round(); close(done) }()
	for open := true; open; {
		select {
		case <-d.entered: // of its slice
			d.goOn <- struct{}{}
		case <-done:
			open = false
		}
	}
	if _, err := c.driver.MemoryLimits(t.Context(), uuid(0), c.leaf(st)); !errors.Is(err, gpu.ErrNoMemoryLimits) {
		t.Errorf("a limit is set while the controller is off: %v", err)
	}
	c.passes(st, "dmem", "dmem")
	done = make(chan struct{})
	go func() { c.round(); c.round(); close(done) }()
	for open := true; open; {
		select {
		case <-d.entered:
			c.passes(st, "dmem", "")
			c.passes(st, "dmem", "dmem")
			d.goOn <- struct{}{}
		case <-done:
			open = false
		}
	}
	c.limits(c.htcondor(), "soft 0 hard max")
	if why, _ := c.Unlimited(uuid(0)); why != "" || !c.off(st) || c.wall() == jobs.EnforcedByCgroup {
		t.Errorf("off %t, wall %s, the GPU: %s", c.off(st), c.wall(), why)
	}
}

// TestKernelMakesNewFiles: a controller of cgroup v2 that is switched off and on again has other files. Tried with one
// that this machine has.
func TestKernelMakesNewFiles(t *testing.T) {
	mount := proctree.CgroupMount(t)
	names, err := os.ReadFile(filepath.Join(mount, "cgroup.subtree_control"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(mount, fmt.Sprintf("gpuslot-files-%d", os.Getpid()))
	leaf := filepath.Join(dir, "leaf")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(leaf), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	for _, name := range strings.Fields(string(names)) {
		turn := func(sign string) (starter.Cgroup, error) {
			put(t, filepath.Join(dir, "cgroup.subtree_control"), sign+name)
			files, _ := filepath.Glob(filepath.Join(leaf, name+".*max"))
			if len(files) == 0 {
				return starter.Cgroup{}, os.ErrNotExist
			}
			return starter.CgroupAt(files[0])
		}
		first, err := turn("+")
		if err != nil {
			continue // it has no limits, as cpuset has none
		}
		if off, err := turn("-"); err == nil {
			t.Errorf("%s is off, and has %+v", name, off)
		}
		if again, err := turn("+"); err != nil || again == first {
			t.Errorf("%s is on again with %+v, before %+v: %v", name, again, first, err)
		}
		return
	}
	t.Skip("this host has no controller of cgroup v2 with limits")
}

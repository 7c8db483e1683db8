package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestCgroupLimitOfAJob: from its admission to the end that its supervisor tells of.
func TestCgroupLimitOfAJob(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.proc.starter(100, "slot1_1")
	grant := c.grant(st, 1000, "alice", uuid(0), 4096)
	if grant.Wall == jobs.WallCgroup || grant.Environment["GPUSLOT_WALL"] == jobs.WallCgroup {
		t.Error("the grant tells of a limit that is not there yet")
	}
	if got := grant.Defaults["XLA_PYTHON_CLIENT_MEM_FRACTION"]; got != "1.00" {
		t.Errorf("JAX is to take %s of a GPU that shows the budget as its total", got)
	}
	c.process(st)
	reply := c.start(t.Context(), starter.Caller{UID: 1000, PID: st.PID + 1000, Starter: st})
	if s := reply.Started; s == nil || !s.Supervise || !s.Reserved {
		t.Errorf("the supervisor hears %+v", reply)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	c.limits(c.htcondor(), "soft 4096 hard max")
	if got := c.wall(0); got != jobs.WallCgroup || c.status().GPUs[0].Wall != jobs.WallCgroup {
		t.Errorf("wall %s", got)
	}
	login := starter.Caller{UID: 1000, PID: st.PID + 2000, Starter: st}
	c.proc.Add(proctree.Process{PID: login.PID, Parent: st.PID, Comm: "supervise", Cgroup: "/htcondor/_x_" + st.Slot + "@wn1/sshd.slice/sshd.scope"})
	if _, err := c.end(t.Context(), login); err != nil {
		t.Fatal(err)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096") // a logout
	if _, err := c.end(t.Context(), hookOf(st, 1000)); err != nil {
		t.Fatal(err)
	}
	c.limits(c.leaf(st), "soft 0 hard 4096")
	c.limits(c.htcondor(), "soft 0 hard max")
	c.round()
	if got := c.wall(0); got != jobs.WallCgroup {
		t.Errorf("wall %s: the hard limit stands to the end", got)
	}
	c.limits(c.leaf(st), "soft 0 hard 4096")
	c.gone(st)
	c.round()
	if got := c.kept(); got != "[]" {
		t.Errorf("kept: %s", got)
	}
	if strings.Contains(c.said.String(), "WARN") || strings.Contains(c.said.String(), "ERROR") {
		t.Error(c.said)
	}
}

// TestProcessOfAnotherStarter: two startds may name their slots alike.
func TestProcessOfAnotherStarter(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.proc.starter(100, "slot1_1")
	c.grant(st, 1000, "alice", uuid(0), 4096)
	other := c.proc.starter(200, "slot1_1")
	c.process(other)
	c.proc.Add(proctree.Process{PID: 1300, Parent: st.PID, Comm: "train", Cgroup: proctree.CgroupOf("slot1_2")})
	wrong := starter.Starter{Slot: "slot1_2"}
	if err := os.MkdirAll(c.leaf(wrong), 0o755); err != nil {
		t.Fatal(err)
	}
	c.round()
	c.limits(c.leaf(st), gpu.ErrNoMemoryLimits.Error())
	c.limits(c.leaf(wrong), gpu.ErrNoMemoryLimits.Error())
}

// TestChildren: the kernel's list, where it has one.
func TestChildren(t *testing.T) {
	f := newFakeProc(t)
	st := f.starter(100, "slot1_1")
	f.Add(proctree.Process{PID: 200, Parent: 1, Comm: "other"})
	if got := f.fs().Children(st.PID); !slices.Equal(got, []int{100, 200, 900}) {
		t.Errorf("without a list: %v", got)
	}
	if got := f.fs().Children(99); len(got) != 0 {
		t.Errorf("of a process that has ended: %v", got)
	}
	dir := filepath.Join(f.Root, "100/task/100")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "children"), []byte("101 1200 "), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(f.Root, "100/task/103"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Root, "100/task/103/children"), []byte("1300 "), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := f.fs().Children(st.PID); !slices.Equal(got, []int{101, 1200, 1300}) {
		t.Errorf("%v", got)
	}
}

// TestCgroupGoneFirst: a job that ended without a word, its cgroup with it.
func TestCgroupGoneFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(*cgroupAgent, starter.Starter)
		want string
	}{
		{"its starter still runs", func(*cgroupAgent, starter.Starter) {}, "soft 2048 hard max"},
		{"its starter has ended", func(c *cgroupAgent, st starter.Starter) { c.proc.End(st.PID); c.sweepNow() }, "soft 2048 hard max"},
		{"the agent was not there", func(c *cgroupAgent, st starter.Starter) { c.proc.End(st.PID); c.again() }, "soft 2048 hard max"},
		{"the slot runs its next job", func(c *cgroupAgent, st starter.Starter) {
			c.proc.End(st.PID)
			c.sweepNow()
			c.job(300, st.Slot, 1024)
		}, "soft 3072 hard max"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCgroupAgent(t)
			st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
			c.round()
			c.limits(c.htcondor(), "soft 6144 hard max")
			c.gone(st)
			tt.then(c, st)
			c.round()
			c.round()
			c.limits(c.htcondor(), tt.want)
			c.limits(c.leaf(other), "soft 2048 hard 2048")
			if strings.Contains(c.kept(), `"PID": 100,`) {
				t.Errorf("kept: %s", c.kept())
			}
			if !strings.Contains(c.said.String(), "went before its reservation") || !strings.Contains(c.said.String(), "mib=4096") {
				t.Errorf("not told: %s", c.said)
			}
		})
	}
}

// TestScopeGoneFirst: where the slice above the job's cgroup stays, the reservation
// is given back there, and so at all above.
func TestScopeGoneFirst(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	slice := filepath.Dir(c.leaf(st))
	c.limits(slice, "soft 4096 hard 4096")
	c.proc.End(st.PID + 1000)
	if err := os.Rename(c.leaf(st), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	c.round()
	c.limits(slice, "soft 0 hard 4096") // what is left of the job may be there
	c.limits(c.htcondor(), "soft 0 hard max")
}

// TestLiving: reservations of the same GPU whose cgroups are there.
func TestLiving(t *testing.T) {
	c := newCgroupAgent(t)
	st, gone := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
	c.round()
	elsewhere := c.cgroups.all()[0]
	elsewhere.GPU = uuid(1)
	if err := c.cgroups.enter(elsewhere); err != nil {
		t.Fatal(err)
	}
	c.gone(gone)
	for u, want := range map[gpu.UUID]int{uuid(0): 1, uuid(1): 1, uuid(2): 0} {
		got := c.cgroups.living(u)
		if len(got) != want || want > 0 && (!got[0].Starter.Is(st) || got[0].GPU != u) {
			t.Errorf("on %s: %+v", u, got)
		}
	}
}

// TestUnreadableReservations: the file is kept aside and said, and the next booking
// does not overwrite it. If it cannot be kept aside nothing is booked.
func TestUnreadableReservations(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "truncated": `[{"gpu":`, "rubbish": "\x00\x01", "another type": `{"gpu":1}`, "incomplete": `[{"gpu":"` + string(uuid(0)) + `"}]`} {
		t.Run(name, func(t *testing.T) {
			c := newCgroupAgent(t)
			file, aside := c.cgroups.file, c.cgroups.file+".unreadable"
			put(t, file, text)
			if err := c.cgroups.read(); err == nil || !strings.Contains(err.Error(), aside) {
				t.Fatalf("read: %v", err)
			}
			if all := strings.Join(c.status().Warnings, "\n"); !strings.Contains(all, aside) || !strings.Contains(all, "reboot") {
				t.Errorf("warnings: %s", all)
			}
			c.job(100, "slot1_1", 4096)
			c.round()
			if got, err := os.ReadFile(aside); err != nil || string(got) != text {
				t.Errorf("kept aside: %q, %v", got, err)
			}
			if got := c.kept(); !strings.Contains(got, `"PID": 100`) {
				t.Errorf("booked: %s", got)
			}
		})
	}
	c := newCgroupAgent(t)
	put(t, c.cgroups.file, "rubbish")
	put(t, c.cgroups.file+".unreadable/in/the/way", "")
	if err := c.cgroups.read(); err == nil {
		t.Fatal("read")
	}
	c.job(100, "slot1_1", 4096)
	c.round()
	if got := c.kept(); got != "rubbish" {
		t.Errorf("overwritten by %s", got)
	}
	if got := c.wall(0); got == jobs.WallCgroup {
		t.Error("a limit that nobody would give back was set")
	}
}

// TestCgroupOutlivesTheStarter: what is left is cleared, so that nothing leaks
// when it goes.
func TestCgroupOutlivesTheStarter(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.proc.End(st.PID)
	c.sweepNow()
	c.round()
	c.limits(c.leaf(st), "soft 0 hard max")
	if got := c.kept(); got != "[]" {
		t.Errorf("kept: %s", got)
	}
}

// TestLateLimit: a job that was faster is told of.
func TestLateLimit(t *testing.T) {
	c := newCgroupAgent(t)
	c.driver.used = gpu.Bytes(gpu.MiB(300).Bytes())
	c.job(100, "slot1_1", 4096)
	c.round()
	if n := c.count(`gpuslot_cgroup_limits_total`); n != 1 {
		t.Errorf("counted %v", n)
	}
	if !strings.Contains(c.said.String(), "used the GPU before its cgroup was limited") || c.wall(0) != jobs.WallCgroup {
		t.Errorf("wall %s: %s", c.wall(0), c.said)
	}
}

// TestLimitRefused: the wall is what it was, the reason is said once, and the
// limit comes when it can.
func TestLimitRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		deaf bool
		bent bool
		says string
	}{
		{"not supported", errors.New("not supported by this GPU or driver"), false, false, "not supported"},
		{"the controller is not enabled", gpu.ErrNoMemoryLimits, false, false, "+dmem"},
		{"it is not kept", nil, true, false, "has no memory limits on this GPU"},
		{"it reads back otherwise", nil, false, true, "read back as soft 4096 MiB, hard 2048 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCgroupAgent(t)
			if err := os.WriteFile(c.driver.root+"/cgroup.controllers", []byte("memory dmem\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			c.driver.change(func(f *fakeCgroups) { f.err, f.deaf, f.bent = tt.err, tt.deaf, tt.bent })
			c.job(100, "slot1_1", 4096)
			for range 3 {
				c.round()
			}
			if got := c.wall(0); got == jobs.WallCgroup {
				t.Error("wall cgroup")
			}
			if n := strings.Count(c.said.String(), "was not limited"); n != 1 {
				t.Errorf("told %d times: %s", n, c.said)
			}
			if all := strings.Join(c.status().Warnings, "\n"); !strings.Contains(all, "not held by limits of cgroups") || !strings.Contains(all, tt.says) {
				t.Errorf("warnings: %s", all)
			}
			if grant := c.grant(c.proc.starter(200, "slot1_2"), 1000, "alice", uuid(0), 4096); grant.Defaults["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "1.00" {
				t.Error("the next job takes the whole GPU for its budget")
			}
			c.driver.change(func(f *fakeCgroups) { f.err, f.deaf, f.bent = nil, false, false })
			c.round()
			if all := strings.Join(c.status().Warnings, "\n"); c.wall(0) != jobs.WallCgroup || strings.Contains(all, "limits of cgroups") {
				t.Errorf("wall %s, warnings: %s", c.wall(0), all)
			}
		})
	}
}

// TestForeignChangeOfALimit: set anew, and told.
func TestForeignChangeOfALimit(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	if err := c.driver.SetMemoryLimits(t.Context(), uuid(0), c.leaf(st), 0, gpu.Unlimited); err != nil {
		t.Fatal(err)
	}
	c.round()
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	if !strings.Contains(c.said.String(), "somebody else changed the limit") {
		t.Error(c.said)
	}
}

// budget is what the startd says of the first job's budget now.
func (c *cgroupAgent) budget(mib gpu.MiB) {
	c.t.Helper()
	c.startd.set([]condor.Slot{slotAd("slot1_1", c.entry("slot1_1").ID, "alice", int64(mib), uuid(0))}, nil)
	c.ask(c.t.Context())
}

// TestStartdSaysAnotherBudget: the limit follows.
func TestStartdSaysAnotherBudget(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.budget(5120)
	if got := c.wall(0); got == jobs.WallCgroup {
		t.Error("a limit of another size counts")
	}
	c.round()
	c.limits(c.leaf(st), "soft 5120 hard 5120")
	if got := c.wall(0); got != jobs.WallCgroup {
		t.Errorf("wall %s", got)
	}
}

// TestReservationThatStays: what cannot be repaired is said, with what to do,
// and tried again.
func TestReservationThatStays(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.gone(st)
	c.driver.change(func(f *fakeCgroups) { f.err = errors.New("the driver is not well") })
	c.round()
	c.round()
	if n := strings.Count(c.said.String(), "stays behind"); n != 1 {
		t.Errorf("told %d times: %s", n, c.said)
	}
	if all := strings.Join(c.status().Warnings, "\n"); !strings.Contains(all, "4096 MiB of "+string(uuid(0))+" stay reserved") || !strings.Contains(all, "nvidia-smi memory-limits --set") {
		t.Errorf("warnings: %s", all)
	}
	c.driver.change(func(f *fakeCgroups) { f.err = nil })
	c.round()
	c.limits(c.htcondor(), "soft 0 hard max")
	if all := strings.Join(c.status().Warnings, "\n"); strings.Contains(all, "stay reserved") {
		t.Errorf("warnings: %s", all)
	}
}

// TestMeasureByCgroup: the driver's count stands in for NVML's, and for nothing
// that NVML knows.
func TestMeasureByCgroup(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.job(100, "slot1_1", 4096)
	c.driver.used = gpu.Bytes(gpu.MiB(700).Bytes())
	c.round()
	all := []watched{{Job: c.jobs.Running()[0]}, {Job: c.jobs.Running()[0], Memory: gpu.Known(gpu.Bytes(5))}, {Job: jobs.Job{Starter: starter.Starter{ID: process.ID{PID: 7}}, GPU: uuid(0)}}}
	c.measure(all, time.Now())
	if all[0].Memory != gpu.Known(gpu.Bytes(700<<20)) || all[1].Memory != gpu.Known(gpu.Bytes(5)) || all[2].Memory.Known {
		t.Errorf("%+v", all)
	}
	c.measure(all[2:], time.Now())
	late := []watched{{Job: jobs.Job{Starter: st, GPU: uuid(0)}}}
	c.measure(late, time.Now().Add(2*provedFor))
	if late[0].Memory.Known {
		t.Error("an old count counts")
	}
}

// TestReleaseLimits: --release leaves no limit and no reservation.
func TestReleaseLimits(t *testing.T) {
	c := newCgroupAgent(t)
	st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
	c.round()
	c.gone(other)
	if err := c.releaseLimits(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.limits(c.leaf(st), "soft 0 hard max")
	c.limits(c.htcondor(), "soft 0 hard max")
	if got := c.kept(); got != "[]" {
		t.Errorf("kept: %s", got)
	}
}

// TestLimitOfABrokenCall: a call that did not come back may take effect later,
// so what it asked for stays booked.
func TestLimitOfABrokenCall(t *testing.T) {
	c := newCgroupAgent(t)
	c.driver.err = context.DeadlineExceeded
	c.job(100, "slot1_1", 4096)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.takeLimits(ctx, c.view.Load())
	if !strings.Contains(c.kept(), `"soft_mib": 4096`) || c.wall(0) == jobs.WallCgroup {
		t.Errorf("wall %s, kept: %s", c.wall(0), c.kept())
	}
	c.driver.change(func(f *fakeCgroups) { f.err = nil })
	c.round()
	if got := c.wall(0); got != jobs.WallCgroup {
		t.Errorf("wall %s", got)
	}
}

// TestLimitLoop: the loop finds the first process of a job by itself, and what
// is left when its cgroup is gone.
func TestLimitLoop(t *testing.T) {
	c := newCgroupAgent(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.limitCgroups(ctx) })
	defer wg.Wait()
	defer cancel()
	until := func(what string, so func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	st := c.proc.starter(100, "slot1_1")
	c.grant(st, 1000, "alice", uuid(0), 4096)
	begin := time.Now()
	c.process(st)
	until("its cgroup is limited", func() bool { return c.wall(0) == jobs.WallCgroup })
	t.Logf("limited %s after its first process came", time.Since(begin).Round(time.Millisecond))
	c.gone(st)
	c.proc.End(st.PID)
	c.sweepNow()
	begin = time.Now()
	until("its reservation is given back", func() bool { return len(c.cgroups.all()) == 0 })
	t.Logf("given back %s after its end was seen", time.Since(begin).Round(time.Millisecond))
	c.limits(c.htcondor(), "soft 0 hard max")
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

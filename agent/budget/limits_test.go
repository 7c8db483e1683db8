package budget

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestProcessOfAnotherStarter: two startds may name their slots alike.
func TestProcessOfAnotherStarter(t *testing.T) {
	c := newNode(t)
	st := c.starter(100, "slot1_1", 4096)
	c.process(starter.Starter{ID: c.proc.Starter(200, "slot1_1"), Slot: "slot1_1"})
	c.proc.Add(proctree.Process{PID: 1300, Parent: st.PID, Comm: "train", Cgroup: proctree.CgroupOf("slot1_2")})
	wrong := starter.Starter{Slot: "slot1_2"}
	if err := os.MkdirAll(c.leaf(wrong), 0o755); err != nil {
		t.Fatal(err)
	}
	c.round()
	c.limits(c.leaf(st), gpu.ErrNoMemoryLimits.Error())
	c.limits(c.leaf(wrong), gpu.ErrNoMemoryLimits.Error())
}

// TestCgroupGoneFirst: a job that ended without a word, its cgroup with it.
func TestCgroupGoneFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(*node, starter.Starter)
		want string
	}{
		{"its starter still runs", func(*node, starter.Starter) {}, "soft 2048 hard max"},
		{"its starter has ended", func(c *node, st starter.Starter) { c.end(st) }, "soft 2048 hard max"},
		{"the agent was not there", func(c *node, st starter.Starter) {
			c.proc.End(st.PID)
			c.again()
		}, "soft 2048 hard max"},
		{"the slot runs its next job", func(c *node, st starter.Starter) {
			c.end(st)
			c.job(300, st.Slot, 1024)
		}, "soft 3072 hard max"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newNode(t)
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
			said := c.said.String()
			if !strings.Contains(said, "went before its reservation") || !strings.Contains(said, "mib=4096") {
				t.Errorf("not logged: %s", said)
			}
		})
	}
}

// TestScopeGoneFirst: where the slice above the job's cgroup stays, the reservation
// is given back there, and so at all above.
func TestScopeGoneFirst(t *testing.T) {
	c := newNode(t)
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
	c := newNode(t)
	st, ended := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
	c.round()
	elsewhere := c.all()[0]
	elsewhere.GPU = uuid(1)
	if err := c.enter(elsewhere); err != nil {
		t.Fatal(err)
	}
	c.gone(ended)
	for u, want := range map[gpu.UUID]int{uuid(0): 1, uuid(1): 1, uuid(2): 0} {
		got := living(u, c.all(), gone(u, c.all()))
		if len(got) != want || want > 0 && (!got[0].Starter.Is(st) || got[0].GPU != u) {
			t.Errorf("on %s: %+v", u, got)
		}
	}
}

// TestUnreadableReservations: the file is kept aside and said, and the next booking
// does not overwrite it. If it cannot be kept aside nothing is booked.
func TestUnreadableReservations(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "truncated": `[{"gpu":`, "rubbish": "\x00\x01", "another type": `{"gpu":1}`,
		"incomplete": `[{"gpu":"` + string(uuid(0)) + `"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newNode(t)
			file, aside := c.file, c.file+".unreadable"
			put(t, file, text)
			if err := c.Read(); err == nil || !strings.Contains(err.Error(), aside) {
				t.Fatalf("read: %v", err)
			}
			if all := c.warnings(); !strings.Contains(all, aside) || !strings.Contains(all, "reboot") {
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
	c := newNode(t)
	put(t, c.file, "rubbish")
	put(t, c.file+".unreadable/in/the/way", "")
	if err := c.Read(); err == nil {
		t.Fatal("read")
	}
	c.job(100, "slot1_1", 4096)
	c.round()
	if got := c.kept(); got != "rubbish" {
		t.Errorf("overwritten by %s", got)
	}
	if got := c.wall(); got == jobs.EnforcedByCgroup {
		t.Error("a limit that nobody would give back was set")
	}
}

// TestCgroupOutlivesTheStarter: what is left is cleared, so that nothing leaks
// when it goes.
func TestCgroupOutlivesTheStarter(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.end(st)
	c.round()
	c.limits(c.leaf(st), "soft 0 hard max")
	if got := c.kept(); got != "[]" {
		t.Errorf("kept: %s", got)
	}
}

// TestLateLimit: only a job that was faster is logged.
func TestLateLimit(t *testing.T) {
	inTime := newNode(t)
	inTime.job(100, "slot1_1", 4096)
	inTime.round()
	if strings.Contains(inTime.said.String(), "used the GPU before") || inTime.counts.late > 0 {
		t.Errorf("of a job that came later: %s", inTime.said)
	}
	for _, used := range []gpu.Bytes{1, gpu.Bytes(gpu.MiB(300).Bytes())} {
		c := newNode(t)
		c.driver.Is(cgroups.Mood{Used: used})
		c.job(100, "slot1_1", 4096)
		c.round()
		if c.counts.late != 1 || c.counts.inTime != 0 {
			t.Errorf("%d bytes: counted %d late, %d in time", used, c.counts.late, c.counts.inTime)
		}
		if !strings.Contains(c.said.String(), "used the GPU before its cgroup was limited") || c.wall() != jobs.EnforcedByCgroup {
			t.Errorf("%d bytes: wall %s: %s", used, c.wall(), c.said)
		}
	}
}

// TestLimitRefused: the wall is what it was, the reason is said once, and the
// limit comes when it can.
func TestLimitRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		mood cgroups.Mood
		says string
	}{
		{"not supported", cgroups.Mood{Err: errors.New("not supported by this GPU or driver")}, "not supported"},
		{"the controller is not enabled", cgroups.Mood{Err: gpu.ErrNoMemoryLimits}, "+dmem"},
		{"it is not kept", cgroups.Mood{Deaf: true}, "has no memory limits on this GPU"},
		{"it reads back otherwise", cgroups.Mood{Bent: true}, "read back as soft 4096 MiB, hard 2048 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newNode(t)
			if err := os.WriteFile(c.driver.Root+"/cgroup.controllers", []byte("memory dmem\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			c.driver.Is(tt.mood)
			c.job(100, "slot1_1", 4096)
			for range 3 {
				c.round()
			}
			if got := c.wall(); got == jobs.EnforcedByCgroup {
				t.Error("wall cgroup")
			}
			if n := strings.Count(c.said.String(), "was not limited"); n != 1 {
				t.Errorf("told %d times: %s", n, c.said)
			}
			if all := c.warnings(); !strings.Contains(all, "not held by limits of cgroups") || !strings.Contains(all, tt.says) {
				t.Errorf("warnings: %s", all)
			}
			if why, at := c.Unlimited(uuid(0)); why == "" || at.IsZero() {
				t.Error("the next job takes the whole GPU for its budget")
			}
			c.driver.Is(cgroups.Mood{})
			c.round()
			if all := c.warnings(); c.wall() != jobs.EnforcedByCgroup || strings.Contains(all, "limits of cgroups") {
				t.Errorf("wall %s, warnings: %s", c.wall(), all)
			}
		})
	}
}

// TestForeignChangeOfALimit: set again, and told.
func TestForeignChangeOfALimit(t *testing.T) {
	c := newNode(t)
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

// TestStartdSaysAnotherBudget: the limit follows.
func TestStartdSaysAnotherBudget(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.budget(st, 5120)
	if got := c.wall(); got == jobs.EnforcedByCgroup {
		t.Error("a limit of another size counts")
	}
	c.round()
	c.limits(c.leaf(st), "soft 5120 hard 5120")
	if got := c.wall(); got != jobs.EnforcedByCgroup {
		t.Errorf("wall %s", got)
	}
}

// TestReservationThatStays: what cannot be repaired is said, with what to do,
// and tried again.
func TestReservationThatStays(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.round()
	c.gone(st)
	c.driver.Is(cgroups.Mood{Err: errors.New("the driver is not well")})
	for range 3 {
		c.round()
	}
	if n := strings.Count(c.said.String(), "stays behind"); n != 1 {
		t.Errorf("told %d times: %s", n, c.said)
	}
	all := c.warnings()
	if !strings.Contains(all, "4096 MiB of "+string(uuid(0))+" stay reserved") ||
		!strings.Contains(all, "nvidia-smi memory-limits --set") {
		t.Errorf("warnings: %s", all)
	}
	c.driver.Is(cgroups.Mood{})
	c.round()
	c.limits(c.htcondor(), "soft 0 hard max")
	if all := c.warnings(); strings.Contains(all, "stay reserved") {
		t.Errorf("warnings: %s", all)
	}
}

// TestUsed: the driver's count of a cgroup is known while its limit stands.
func TestUsed(t *testing.T) {
	c := newNode(t)
	st := c.job(100, "slot1_1", 4096)
	c.driver.Is(cgroups.Mood{Used: gpu.Bytes(gpu.MiB(700).Bytes())})
	c.round()
	if used := c.Used(st, uuid(0), time.Now()); used != gpu.Known(gpu.Bytes(700<<20)) {
		t.Errorf("%+v", used)
	}
	other := starter.Starter{ID: process.ID{PID: 7}}
	if c.Used(st, uuid(1), time.Now()).Known || c.Used(other, uuid(0), time.Now()).Known {
		t.Error("known without a limit")
	}
	if c.Used(st, uuid(0), time.Now().Add(2*confirmedFor)).Known {
		t.Error("an old count counts")
	}
}

// TestReleaseLimits: --release leaves no limit and no reservation.
func TestReleaseLimits(t *testing.T) {
	c := newNode(t)
	st, other := c.job(100, "slot1_1", 4096), c.job(200, "slot1_2", 2048)
	c.round()
	c.gone(other)
	if err := c.Release(t.Context()); err != nil {
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
	c := newNode(t)
	c.driver.Is(cgroups.Mood{Err: context.DeadlineExceeded})
	c.job(100, "slot1_1", 4096)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Round(ctx, now())
	if !strings.Contains(c.kept(), `"soft_mib": 4096`) || c.wall() == jobs.EnforcedByCgroup {
		t.Errorf("wall %s, kept: %s", c.wall(), c.kept())
	}
	c.driver.Is(cgroups.Mood{})
	c.round()
	if got := c.wall(); got != jobs.EnforcedByCgroup {
		t.Errorf("wall %s", got)
	}
}

// TestLimitLoop: the loop finds the first process of a job by itself, and what
// is left when its cgroup is gone.
func TestLimitLoop(t *testing.T) {
	c := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx, now) })
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
	st := c.starter(100, "slot1_1", 4096)
	begin := time.Now()
	c.process(st)
	until("its cgroup is limited", func() bool { return c.wall() == jobs.EnforcedByCgroup })
	t.Logf("limited %s after its first process came", time.Since(begin).Round(time.Millisecond))
	c.gone(st)
	c.end(st)
	begin = time.Now()
	until("its reservation is given back", func() bool { return len(c.all()) == 0 })
	t.Logf("given back %s after its end was seen", time.Since(begin).Round(time.Millisecond))
	c.limits(c.htcondor(), "soft 0 hard max")
}

func put(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

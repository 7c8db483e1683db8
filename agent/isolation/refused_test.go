package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

var errNo = errors.New("no")

// TestRefused: a rule that the kernel does not take for a cgroup is a warning and keeps the job from its start, until
// the kernel takes it.
func TestRefused(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	n.cgroup(condorService)
	n.wall.refuses = errNo
	if err := n.CloseAtStart(now(), s, n.table.HeldBy(s), n.leaf(s)); !errors.Is(err, errNo) {
		t.Error(err)
	}
	for range 2 {
		n.Round(now(), time.Now())
	}
	if all := strings.Join(n.Warnings(), "\n"); strings.Count(all, ": no.") != 2 || !n.Enforced() || n.counts.of(Missing) != 1 || n.counts.of(InTime) != 0 {
		t.Errorf("warnings %q, enforced %t, counted %v", n.Warnings(), n.Enforced(), n.counts.by)
	}
	if said := "programs outside the cgroups of jobs can open"; strings.Count(n.said.String(), said) != 1 {
		t.Errorf("said %s", n.said)
	}
	n.wall.refuses = nil
	if err := n.CloseAtStart(now(), s, n.table.HeldBy(s), n.leaf(s)); err != nil {
		t.Error(err)
	}
	if n.Round(now(), time.Now()); len(n.Warnings()) > 0 || len(n.wall.by) != 2 || n.counts.of(InTime) != 1 {
		t.Errorf("warnings %q, rules %v, counted %v", n.Warnings(), n.wall.by, n.counts.by)
	}
}

// TestRuleIsPutOnce: rounds leave the rules that are there.
func TestRuleIsPutOnce(t *testing.T) {
	n := newNode(t)
	n.job(100, 3)
	n.cgroup(condorService)
	for range 3 {
		if n.Round(now(), time.Now()); n.wall.puts != 2 {
			t.Errorf("%d rules were put", n.wall.puts)
		}
	}
}

// TestEndsMeanwhile: a cgroup that ends while it gets its rule is no warning. The job there does not start.
func TestEndsMeanwhile(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	n.cgroup(condorService)
	n.wall.refuses, n.wall.ends = errNo, true
	if err := n.CloseAtStart(now(), s, n.table.HeldBy(s), n.leaf(s)); !errors.Is(err, errGone) {
		t.Error(err)
	}
	if n.Round(now(), time.Now()); len(n.Warnings()) > 0 || n.counts.of(Missing) > 0 {
		t.Errorf("warnings %q, counted %v", n.Warnings(), n.counts.by)
	}
}

// TestNoJobsRule: while the kernel takes no rule at all, that is a reason for all jobs, and no job's.
func TestNoJobsRule(t *testing.T) {
	n := newNode(t)
	n.job(100, 3)
	n.cgroup(condorService)
	n.wall.err = errNo
	if n.Round(now(), time.Now()); len(n.Warnings()) != 1 || n.Enforced() || n.counts.of(Missing) > 0 {
		t.Errorf("warnings %q, enforced %t, counted %v", n.Warnings(), n.Enforced(), n.counts.by)
	}
	whole := now()
	whole.Instances = nil
	if n.Round(whole, time.Now()); len(n.Warnings()) > 0 || !n.Enforced() {
		t.Errorf("not divided: warnings %q, enforced %t", n.Warnings(), n.Enforced())
	}
	n.kernel, n.opened = nil, false
	if n.Round(now(), time.Now()); len(n.Warnings()) > 0 || n.Enforced() {
		t.Errorf("without a kernel: warnings %q, enforced %t", n.Warnings(), n.Enforced())
	}
}

// TestRuleOutsideStays: a rule that cannot be taken back is a line of log, and the next round tries again, unless its
// cgroup has ended.
func TestRuleOutsideStays(t *testing.T) {
	whole := now()
	whole.Instances = nil
	for _, ends := range []bool{false, true} {
		n := newNode(t)
		n.job(100, 3)
		n.cgroup(condorService)
		n.Round(now(), time.Now())
		n.wall.keeps = errNo
		if ends {
			n.removes(condorService)
		}
		n.Round(whole, time.Now())
		if n.opened != ends || strings.Contains(n.said.String(), "outside of jobs stays") == ends {
			t.Errorf("ended %t: opened %t, said %s", ends, n.opened, n.said)
		}
		n.wall.keeps = nil
		n.Round(whole, time.Now())
		if _, on := n.on(condorService); on != ends || !n.opened {
			t.Errorf("ended %t, afterwards: a rule %t, opened %t", ends, on, n.opened)
		}
	}
}

// TestRuleOutsideAgain: where a GPU is divided after a time in which none was, the rules go again with the division.
func TestRuleOutsideAgain(t *testing.T) {
	n := newNode(t)
	n.job(100, 3)
	n.cgroup(condorService)
	whole := now()
	whole.Instances = nil
	for range 2 {
		if n.Round(whole, time.Now()); !n.opened {
			t.Error("rules may be left")
		}
		if _, on := n.on(condorService); on {
			t.Error("a rule stays")
		}
		if n.Round(now(), time.Now()); len(n.Warnings()) > 0 {
			t.Errorf("%q", n.Warnings())
		}
		if _, on := n.on(condorService); !on {
			t.Error("no rule is put")
		}
	}
}

// removes ends a cgroup with all below it.
func (n *node) removes(p string) {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.root, p)); err != nil {
		n.t.Fatal(err)
	}
}

// daemonsIn are HTCondor's daemons in these cgroups. With an error there may be more.
type daemonsIn struct {
	HTCondor
	cgroups []string
	err     error
}

func (d daemonsIn) OfDaemons() ([]string, []uint32, error) { return d.cgroups, nil, d.err }

// TestDaemonsNotKnown: those that are known get their rule, and the rest is a warning. A job that is in none of them
// does not start.
func TestDaemonsNotKnown(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	n.cgroup(condorService)
	n.cgroup("/a")
	n.htcondor = daemonsIn{n.htcondor, []string{"/a", condorService}, errNo}
	n.Round(now(), time.Now())
	if _, on := n.on(condorService); !on || !strings.Contains(strings.Join(n.Warnings(), ""), ": no; "+errDaemonsNoUnit.Error()+": /a.") {
		t.Errorf("a rule %t, warnings %q", on, n.Warnings())
	}
	is := now()
	is.JobCgroups = false
	n.cgroup("/b")
	for cgroup, want := range map[string]error{"/b": errNo, condorService: nil} {
		if err := n.Starts(is, starter.Caller{Hook: true, Starter: s, Cgroup: cgroup}); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("in %s: %v", cgroup, err)
		}
	}
	if err := n.OpenOutside(); !errors.Is(err, errNo) || n.opened {
		t.Errorf("%v, opened %t", err, n.opened)
	}
	n.htcondor = daemonsIn{n.htcondor, []string{"/"}, nil}
	n.wall.by[n.root] = devices.Rule{} // not ours
	if err := n.OpenOutside(); err != nil || len(n.wall.by) != 1+1 {
		t.Errorf("%v, rules %v", err, n.wall.by)
	}
}

// TestDaemonsThatCannotBeLookedAt: a cgroup that cannot be found out about is a warning.
func TestDaemonsThatCannotBeLookedAt(t *testing.T) {
	n := newNode(t)
	if err := os.WriteFile(filepath.Join(n.root, "system.slice"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n.Round(now(), time.Now()); !strings.Contains(strings.Join(n.Warnings(), ""), "system.slice") {
		t.Errorf("%q", n.Warnings())
	}
}

// TestManyEnd: the slices that are gone keep no rule of another job that has ended.
func TestManyEnd(t *testing.T) {
	n := newNode(t)
	var all []starter.Starter
	for i := range 8 {
		all = append(all, n.job(100+i, i+1))
	}
	n.Round(now(), time.Now())
	for i, s := range all {
		n.proc.End(s.PID + 1000)
		n.proc.End(s.PID)
		if i > 0 {
			n.removes(filepath.Dir(n.leaf(s)))
		}
	}
	if n.Round(now(), time.Now()); n.rule(all[0]) != "none" {
		t.Errorf("rules %v", n.wall.by)
	}
}

// TestMomentsOfARound: from when on a job without a rule is a warning, and one with a rule is late. A job from before
// the agent may have had its rule in time.
func TestMomentsOfARound(t *testing.T) {
	n := newNode(t)
	with, without := n.job(100, 3), n.job(101, 4)
	n.proc.End(without.PID + 1000)
	adopted := n.starter(102, 5)
	n.table.Admit(starter.Caller{Starter: adopted, Hook: true}, func(*jobs.View) []jobs.Job {
		return []jobs.Job{{Starter: adopted, GPU: mig(5), Adopted: true}}
	})
	at := n.table.HeldBy(without)[0].Since
	for _, c := range []struct {
		after         time.Duration
		missing, late int
	}{{0, 0, 0}, {LateAfter - 1, 0, 0}, {LateAfter, 1, 1}, {2 * LateAfter, 1, 1}} {
		if n.Round(now(), at.Add(c.after)); n.counts.of(Missing) != c.missing || n.counts.of(Late) != c.late {
			t.Errorf("after %s: counted %v", c.after, n.counts.by)
		}
	}
	if n.rule(with) != own(3) || n.rule(adopted) != own(5) {
		t.Errorf("rules %v", n.wall.by)
	}
}

// TestBook: the rule of a slice settles once, when it is old enough.
func TestBook(t *testing.T) {
	n := newNode(t)
	slice, at := starter.Cgroup{Path: "/slice"}, time.Unix(1000, 0)
	n.enter(slice, heldNodes{since: at})
	for i, c := range []struct {
		slice  starter.Cgroup
		before time.Time
		want   bool
	}{{slice, at.Add(-1), false}, {starter.Cgroup{}, at, false}, {slice, at, true}, {slice, at, false}} {
		if got := n.settle(c.slice, c.before); got != c.want {
			t.Errorf("question %d: settled %t", i, got)
		}
	}
}

// TestNews: a reason is news once, and again after another one, or after none.
func TestNews(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	for name, complain := range map[string]func(error) bool{
		"of jobs":    func(err error) bool { return n.complain(s.ID, err) },
		"of daemons": n.complainOfDaemons,
	} {
		for i, c := range []struct {
			err  error
			news bool
		}{{nil, false}, {errNo, true}, {errNo, false}, {errGone, true}, {nil, false}, {errGone, true}} {
			if got := complain(c.err); got != c.news {
				t.Errorf("%s, %d: news %t", name, i, got)
			}
		}
	}
	n.complain(starter.Starter{}.ID, errGone)
	n.complainOfDaemons(errors.Join(errNo, errGone))
	want := []string{
		fmt.Sprintf("Jobs can open the device nodes of other MIG devices of their GPU: %v.", errGone),
		fmt.Sprintf("Programs outside the cgroups of jobs can open device nodes of MIG devices or shared GPUs: no; %v.", errGone),
	}
	if got := n.Warnings(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestInstancesOfJobs: a job has what its GPUs have, each job once, and what is not known is an error of its job.
func TestInstancesOfJobs(t *testing.T) {
	c := now()
	start := 4
	place := gpu.PlaceID(uuid(0), "1g.5gb@4")
	c.Instances = InstancesOf(gpu.Inventory{GPUs: []gpu.GPU{{UUID: uuid(0), MIGEnabled: true, MIGDevices: []gpu.MIGDevice{
		{UUID: mig(3), GPUInstance: 3}, {UUID: mig(5), GPUInstance: 5, Profile: "1g.5gb", Start: &start}, {UUID: mig(7), GPUInstance: 7},
	}}}}, nil)
	n := newNode(t)
	one, two := n.starter(100, 1), n.starter(200, 2)
	got := c.withNodes([]jobs.Job{{Starter: one, GPU: mig(3)}, {Starter: two, GPU: "gone"}, {Starter: one, GPU: place}, {Starter: one, GPU: "x", Device: mig(7)}})
	if len(got) != 2 || fmt.Sprint(got[0].own) != fmt.Sprint([]devices.Instance{{GPU: uuid(0), ID: 3}, {GPU: uuid(0), ID: 5}, {GPU: uuid(0), ID: 7}}) || got[0].err != nil {
		t.Errorf("%+v", got)
	}
	if len(got) == 2 && (len(got[1].own) > 0 || got[1].err == nil || !strings.Contains(got[1].err.Error(), "of gone is not known")) {
		t.Errorf("%+v", got[1])
	}
}

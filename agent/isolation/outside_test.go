package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// sharing are conditions in which jobs share these undivided GPUs, and no GPU is divided.
func sharing(gpus ...int) Conditions {
	c := now()
	c.Instances = Instances{}
	for _, n := range gpus {
		c.Instances[uuid(n)] = nil
		c.ForJobs = append(c.ForJobs, uuid(n))
	}
	return c
}

// withGPUs is a node whose driver lists GPUs beside the first, at /dev/nvidiaN, with users' cgroups and HTCondor's.
func withGPUs(t *testing.T, minors ...int) *node {
	t.Helper()
	n := newNode(t)
	for _, minor := range minors {
		n.lists(uuid(minor), minor)
	}
	n.cgroup(condorService)
	for _, p := range starter.UserCgroups {
		n.cgroup(p)
	}
	n.master(condorAccount)
	n.proc.Add(proctree.Process{PID: proctree.Startd, Parent: condorMaster, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: condorService})
	return n
}

// condorAccount is HTCondor's own, condorMaster its master.
const (
	condorAccount = 64
	condorMaster  = 800
)

// master has HTCondor's master act as an account.
func (n *node) master(uid uint32) {
	n.proc.Add(proctree.Process{PID: condorMaster, Parent: 1, Comm: "condor_master", Exe: "/usr/sbin/condor_master",
		UIDs: &process.UIDs{Effective: uid, FileSystem: uid}})
}

// lists has the driver list a GPU.
func (n *node) lists(u gpu.UUID, minor int) {
	n.t.Helper()
	file := filepath.Join(n.proc.Root, fmt.Sprintf("driver/nvidia/gpus/%d/information", minor))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "GPU UUID: %s\nDevice Minor: %d\n", u, minor), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// wantOutside wants the same rule on the cgroups of HTCondor's daemons and of users: MIG's nodes closed or not, and
// GPUs' nodes. Without either it wants none.
func (n *node) wantOutside(when string, mig bool, minors ...uint32) {
	n.t.Helper()
	n.wantOn(append([]string{condorService}, starter.UserCgroups...), when, mig, minors...)
}

func (n *node) wantOn(cgroups []string, when string, mig bool, minors ...uint32) {
	n.t.Helper()
	for _, p := range cgroups {
		r, on := n.on(p)
		var closed []uint32
		for _, node := range r.Closed {
			closed = append(closed, node.Minor)
			if node.Major != 195 {
				n.t.Errorf("%s: %s: %+v", when, p, node)
			}
		}
		if on != (mig || len(minors) > 0) || on && (!slices.Equal(r.Spared, []uint32{0, condorAccount}) || len(r.Own) > 0 || (r.Major == 509) != mig) || !slices.Equal(closed, minors) {
			n.t.Errorf("%s: %s: a rule %t, %+v, want MIG's nodes closed %t and %v: %s", when, p, on, r, mig, minors, n.said)
		}
	}
}

// TestSharedGPUs: what runs outside of jobs opens no GPU that jobs share, jobs all. The rule follows the plan, in the
// place of the one before, and goes with the last such GPU.
func TestSharedGPUs(t *testing.T) {
	n := withGPUs(t, 1, 2)
	for _, name := range []string{"devices", "driver/nvidia-caps/mig-minors"} { // the driver makes no MIG devices
		if err := os.Remove(filepath.Join(n.proc.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := n.job(100, 3)
	whole := sharing()
	observed := sharing(1)
	observed.Observed = true
	for _, c := range []struct {
		when string
		is   Conditions
		want []uint32
	}{{"whole", whole, nil}, {"one", sharing(1), []uint32{1}}, {"two", sharing(2, 1), []uint32{1, 2}}, {"another", sharing(2), []uint32{2}},
		{"observed", observed, nil}, {"again", sharing(1), []uint32{1}}, {"none", whole, nil}} {
		for range 2 {
			n.Round(c.is, time.Now())
		}
		n.wantOutside(c.when, false, c.want...)
		if n.rule(s) != "none" || len(n.Warnings()) > 0 || !n.Enforced() {
			t.Errorf("%s: the job %s, enforced %t: %q", c.when, n.rule(s), n.Enforced(), n.Warnings())
		}
	}
	if n.wall.puts != 4*(1+len(starter.UserCgroups)) {
		t.Errorf("%d rules were put", n.wall.puts)
	}
}

// TestSharedBesideMIG: one rule closes both. Without a plan HTCondor's daemons keep it: what is divided is not known.
func TestSharedBesideMIG(t *testing.T) {
	n := withGPUs(t, 1)
	both := now()
	both.ForJobs = []gpu.UUID{uuid(1)}
	n.Round(both, time.Now())
	n.wantOutside("both", true, 1)
	n.Round(sharing(1), time.Now())
	n.wantOutside("undivided", false, 1)
	n.Round(both, time.Now())
	unplanned := sharing(1)
	unplanned.Planned = false
	n.Round(unplanned, time.Now())
	n.wantOn(starter.UserCgroups, "without a plan", false, 1)
	n.wantOn([]string{condorService}, "without a plan", true, 1)
	n.Round(now(), time.Now())
	n.wantOutside("no shared GPU", true)
	if err := n.OpenOutside(); err != nil || len(n.wall.by) > 0 {
		t.Errorf("%v, rules %v", err, n.wall.by)
	}
}

// TestSharedGPUsOfDaemons: where jobs may run in the cgroup of HTCondor's daemons without asking for their start,
// nothing is closed there, also by a rule of an earlier agent. A job that is seen there takes the rule away.
func TestSharedGPUsOfDaemons(t *testing.T) {
	n := withGPUs(t, 1)
	together, silent := sharing(1), sharing(1)
	together.JobCgroups, silent.Supervised = false, false
	for name, c := range map[string]Conditions{"no cgroups for jobs": together, "no supervisors": silent} {
		n.Round(sharing(1), time.Now())
		n.wantOutside("before", false, 1)
		n.daemons = map[starter.Cgroup]daemonCgroup{} // an agent that starts
		n.Round(c, time.Now())
		n.wantOn([]string{condorService}, name, false)
		n.wantOn(starter.UserCgroups, name, false, 1)
	}
	n.Round(sharing(1), time.Now())
	if err := n.Starts(sharing(1), starter.Caller{Leaf: starter.Leaf{Path: condorService + "/job"}}); err != nil {
		t.Error(err)
	}
	n.wantOn([]string{condorService}, "a job is there", false)
	n.Round(sharing(1), time.Now())
	n.wantOn([]string{condorService}, "a job is there", false)
	if !strings.Contains(strings.Join(n.Warnings(), ""), errDaemonsAndJobs.Error()) {
		t.Errorf("%q", n.Warnings())
	}
}

// TestSpared: HTCondor's own account opens all outside of jobs, also while its master acts as root for a moment.
func TestSpared(t *testing.T) {
	n := withGPUs(t, 1)
	n.Round(sharing(1), time.Now())
	n.master(0)
	n.Round(sharing(1), time.Now())
	n.wantOutside("as root", false, 1)
	n.master(65)
	n.Round(sharing(1), time.Now())
	if r, _ := n.on(condorService); !slices.Equal(r.Spared, []uint32{0, 65}) {
		t.Errorf("another account: %+v", r)
	}
}

// TestSharedGPUThatIsNotListed: the nodes of the others are closed, and a warning names it. For want of descriptors
// nothing is opened.
func TestSharedGPUThatIsNotListed(t *testing.T) {
	n := withGPUs(t, 1)
	for range 2 {
		n.Round(sharing(1, 7), time.Now())
	}
	n.wantOutside("one is not listed", false, 1)
	said := "Programs outside the cgroups of jobs can open device nodes of MIG devices or shared GPUs: GPU " + string(uuid(7)) +
		": the driver does not list it in /proc."
	if got := strings.Join(n.Warnings(), "\n"); got != said || strings.Count(n.said.String(), "can open device nodes") != 1 {
		t.Errorf("warnings %q, said %s", got, n.said)
	}
	n.lists(uuid(7), 7)
	n.Round(sharing(1, 7), time.Now())
	n.wantOutside("all are listed", false, 1, 7)
	proctree.WithoutDescriptors(t, func() { n.Round(sharing(1, 7), time.Now()) })
	n.wantOutside("without descriptors", false, 1, 7)
	if n.Round(sharing(1, 7), time.Now()); len(n.Warnings()) > 0 {
		t.Errorf("%q", n.Warnings())
	}
	n.wall.refuses = errNo
	if n.Round(sharing(1), time.Now()); !strings.Contains(strings.Join(n.Warnings(), ""), starter.UserCgroups[0]+": no") || !n.Enforced() {
		t.Errorf("%q, enforced %t", n.Warnings(), n.Enforced())
	}
}

// TestSharedGPUsOfASession: where HTCondor runs below a user's cgroup its jobs keep their GPUs, also when it comes
// there later, or a job does.
func TestSharedGPUsOfASession(t *testing.T) {
	n := withGPUs(t, 1)
	session := starter.UserCgroups[0] + "/session.scope"
	wantOpen := func(when string) {
		t.Helper()
		_, on := n.on(starter.UserCgroups[0])
		if other, _ := n.on(starter.UserCgroups[1]); on || len(other.Closed) != 1 || !strings.Contains(strings.Join(n.Warnings(), ""), errUsersAndJobs.Error()) {
			t.Errorf("%s: a rule %t, %+v, %q", when, on, other, n.Warnings())
		}
	}
	n.Round(sharing(1), time.Now())
	n.wantOutside("before", false, 1)
	startd := proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: session}
	n.proc.Add(startd)
	n.Round(sharing(1), time.Now())
	wantOpen("HTCondor comes")
	startd.Cgroup = condorService
	n.proc.Add(startd)
	n.Round(sharing(1), time.Now())
	n.wantOutside("it went", false, 1)

	s := n.job(100, 3)
	n.proc.Add(proctree.Process{PID: s.PID + 1000, Parent: s.PID, Comm: "train", Cgroup: session + n.leaf(s)})
	n.Round(sharing(1), time.Now())
	wantOpen("a job is there")
}

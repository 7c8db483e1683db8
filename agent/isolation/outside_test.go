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
	"github.com/gpuslot/gpuslot/gpu/devices"
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
	n.proc.Add(proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: condorService})
	return n
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

// wantUsers wants the same rule on all cgroups of users: MIG's nodes closed or not, and GPUs' nodes. Without either it
// wants none.
func (n *node) wantUsers(when string, mig bool, minors ...uint32) {
	n.t.Helper()
	for _, p := range starter.UserCgroups {
		r, on := n.on(p)
		var closed []uint32
		for _, node := range r.Closed {
			closed = append(closed, node.Minor)
			if node.Major != 195 {
				n.t.Errorf("%s: %s: %+v", when, p, node)
			}
		}
		if on != (mig || len(minors) > 0) || on && (!r.NotRoot || len(r.Own) > 0 || (r.Major == 509) != mig) || !slices.Equal(closed, minors) {
			n.t.Errorf("%s: %s: a rule %t, %+v, want MIG's nodes closed %t and %v: %s", when, p, on, r, mig, minors, n.said)
		}
	}
}

// TestSharedGPUs: users' programs outside of jobs open no GPU that jobs share, HTCondor's daemons and jobs all. The rule
// follows the plan, in the place of the one before, and goes with the last such GPU.
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
		n.wantUsers(c.when, false, c.want...)
		if _, on := n.on(condorService); on || n.rule(s) != "none" || len(n.Warnings()) > 0 || !n.Enforced() {
			t.Errorf("%s: HTCondor's daemons %t, the job %s, enforced %t: %q", c.when, on, n.rule(s), n.Enforced(), n.Warnings())
		}
	}
	if n.wall.puts != 4*len(starter.UserCgroups) {
		t.Errorf("%d rules were put", n.wall.puts)
	}
}

// TestSharedBesideMIG: one rule closes both to users. When no GPU is divided any more, that of HTCondor's daemons goes.
// Without a plan it stays: what is divided is not known.
func TestSharedBesideMIG(t *testing.T) {
	n := withGPUs(t, 1)
	both := now()
	both.ForJobs = []gpu.UUID{uuid(1)}
	n.Round(both, time.Now())
	n.wantUsers("both", true, 1)
	if r, on := n.on(condorService); !on || r.NotRoot || len(r.Closed) > 0 {
		t.Errorf("HTCondor's daemons: %t %+v", on, r)
	}
	unplanned := sharing(1)
	unplanned.Planned = false
	for name, c := range map[string]Conditions{"without a plan": unplanned, "undivided": sharing(1)} {
		n.Round(both, time.Now())
		n.Round(c, time.Now())
		n.wantUsers(name, false, 1)
		if _, on := n.on(condorService); on != !c.Planned {
			t.Errorf("%s: HTCondor's daemons: %t", name, on)
		}
	}
	n.Round(both, time.Now())
	n.Round(now(), time.Now())
	n.wantUsers("no shared GPU", true)

	n.wall.by[filepath.Join(n.root, condorService)] = devices.Rule{}
	n.daemons = map[starter.Cgroup]daemonCgroup{} // an agent that starts
	n.Round(sharing(1), time.Now())
	if _, on := n.on(condorService); on {
		t.Error("the rule of an earlier agent stays on HTCondor's daemons")
	}
	if err := n.OpenOutside(); err != nil || len(n.wall.by) > 0 {
		t.Errorf("%v, rules %v", err, n.wall.by)
	}
}

// TestSharedGPUThatIsNotListed: the nodes of the others are closed, and a warning names it. For want of descriptors
// nothing is opened.
func TestSharedGPUThatIsNotListed(t *testing.T) {
	n := withGPUs(t, 1)
	for range 2 {
		n.Round(sharing(1, 7), time.Now())
	}
	n.wantUsers("one is not listed", false, 1)
	said := "Programs outside the cgroups of jobs can open device nodes of MIG devices or shared GPUs: GPU " + string(uuid(7)) +
		": the driver does not list it in /proc."
	if got := strings.Join(n.Warnings(), "\n"); got != said || strings.Count(n.said.String(), "can open device nodes") != 1 {
		t.Errorf("warnings %q, said %s", got, n.said)
	}
	n.lists(uuid(7), 7)
	n.Round(sharing(1, 7), time.Now())
	n.wantUsers("all are listed", false, 1, 7)
	proctree.WithoutDescriptors(t, func() { n.Round(sharing(1, 7), time.Now()) })
	n.wantUsers("without descriptors", false, 1, 7)
	if n.Round(sharing(1, 7), time.Now()); len(n.Warnings()) > 0 {
		t.Errorf("%q", n.Warnings())
	}
	n.wall.refuses = errNo
	if n.Round(sharing(1), time.Now()); !strings.Contains(strings.Join(n.Warnings(), ""), starter.UserCgroups[0]+": no") || !n.Enforced() {
		t.Errorf("%q, enforced %t", n.Warnings(), n.Enforced())
	}
}

// TestSharedGPUsOfASession: where HTCondor runs below a user's cgroup its jobs keep their GPUs, also when it comes there
// later, or a job does.
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
	n.wantUsers("before", false, 1)
	startd := proctree.Process{PID: proctree.Startd, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: session}
	n.proc.Add(startd)
	n.Round(sharing(1), time.Now())
	wantOpen("HTCondor comes")
	startd.Cgroup = condorService
	n.proc.Add(startd)
	n.Round(sharing(1), time.Now())
	n.wantUsers("it went", false, 1)

	s := n.job(100, 3)
	n.proc.Add(proctree.Process{PID: s.PID + 1000, Parent: s.PID, Comm: "train", Cgroup: session + n.leaf(s)})
	n.Round(sharing(1), time.Now())
	wantOpen("a job is there")
}

package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// graphics gives a GPU that the driver lists, by its number there, a node for graphics.
func (n *node) graphics(listed, minor string) {
	n.t.Helper()
	dir := filepath.Join(n.proc.Root, "sys/bus/pci/devices", listed, "drm/renderD"+minor)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dev"), []byte("226:"+minor+"\n"), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// TestGraphics: only root and HTCondor's own account open the nodes for graphics of GPUs that jobs share, before
// there is a job, and also beside MIG devices. The rule follows the plan, and goes with the last such GPU, also one of an
// earlier agent.
func TestGraphics(t *testing.T) {
	n := withGPUs(t, 1, 2)
	n.Nodes.proc.Sys = filepath.Join(n.proc.Root, "sys")
	n.graphics("1", "129")
	n.graphics("2", "130")
	const daemons = condorService + "/daemons"
	n.cgroup(daemons)
	startd := proctree.Process{PID: proctree.Startd, Parent: condorMaster, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: daemons}
	n.proc.Add(startd)
	wantOn := func(when, p string, minors ...uint32) {
		t.Helper()
		r, on := n.on(p)
		var got []uint32
		for _, node := range r.Closed {
			if node.Major == 226 {
				got = append(got, node.Minor)
			}
		}
		if on != (len(r.Closed) > 0 || r.Major != 0) || !slices.Equal(got, minors) || on && !slices.Equal(r.Spared, []uint32{0, condorAccount}) {
			t.Errorf("%s: %s: a rule %t, %+v, want %v closed", when, p, on, r, minors)
		}
	}
	beside := now()
	beside.ForJobs = sharing(2).ForJobs
	for _, c := range []struct {
		when string
		is   Conditions
		want []uint32
	}{{"one", sharing(1), []uint32{129}}, {"two", sharing(1, 2), []uint32{129, 130}}, {"beside MIG", beside, []uint32{130}},
		{"MIG alone", now(), nil}, {"again", sharing(1), []uint32{129}}, {"none", sharing(), nil}, {"at last", sharing(1), []uint32{129}}} {
		puts := -1
		for range 2 {
			n.Round(c.is, time.Now())
			if puts >= 0 && n.wall.puts != puts {
				t.Errorf("%s: a rule that is there was put again", c.when)
			}
			puts = n.wall.puts
		}
		for _, p := range append([]string{condorService, daemons}, starter.UserCgroups...) {
			wantOn(c.when, p, c.want...)
		}
		if r, on := n.on(condorService); on && (r.Major != 0 || len(r.Closed) != len(c.want)) {
			t.Errorf("%s: jobs have a rule about more: %+v", c.when, r)
		}
	}
	n.wall.refuses = errNo
	if n.Round(sharing(2), time.Now()); !strings.Contains(strings.Join(n.Warnings(), ""), "nodes for graphics: no") {
		t.Errorf("%q", n.Warnings())
	}
	n.wall.refuses = nil
	proctree.WithoutDescriptors(t, func() { n.Round(sharing(1), time.Now()) })
	wantOn("without descriptors", condorService, 129)

	n.above, n.opened = nil, false // an agent that starts
	n.wall.by[filepath.Join(n.root, condorService)] = devices.Rule{Closed: []devices.Node{{Major: 226, Minor: 129}}}
	n.Round(now(), time.Now())
	wantOn("MIG alone, after an earlier agent", condorService)
}

// TestGraphicsWithoutService: where HTCondor's daemons are in no cgroup below a service, jobs can open the nodes, and a
// warning says so.
func TestGraphicsWithoutService(t *testing.T) {
	for daemons, want := range map[string]string{
		"/": "", "/user.slice/session-1.scope": "", condorService: "", condorService + "/daemons": condorService,
		"/../system.slice/x.service/daemons": "",
	} {
		if got := serviceOf(daemons); got != want {
			t.Errorf("%s: %q", daemons, got)
		}
	}
	n := withGPUs(t, 1) // in the service's own cgroup
	n.Nodes.proc.Sys = filepath.Join(n.proc.Root, "sys")
	n.Round(sharing(1), time.Now())
	if len(n.Warnings()) > 0 {
		t.Errorf("without such nodes: %q", n.Warnings())
	}
	n.graphics("1", "129")
	if n.Round(sharing(1), time.Now()); !strings.Contains(strings.Join(n.Warnings(), ""), errGraphicsOpen.Error()) {
		t.Errorf("%q", n.Warnings())
	}
}

// TestGraphicsWithoutDaemons: the rule goes with the last shared GPU also while no startd is seen.
func TestGraphicsWithoutDaemons(t *testing.T) {
	n := withGPUs(t, 1)
	n.Nodes.proc.Sys = filepath.Join(n.proc.Root, "sys")
	n.graphics("1", "129")
	const daemons = condorService + "/daemons"
	n.cgroup(daemons)
	n.proc.Add(proctree.Process{PID: proctree.Startd, Parent: condorMaster, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: daemons})
	n.Round(sharing(1), time.Now())
	if err := os.RemoveAll(filepath.Join(n.proc.Root, strconv.Itoa(proctree.Startd))); err != nil {
		t.Fatal(err)
	}
	if n.Round(sharing(1), time.Now()); len(n.Warnings()) > 0 {
		t.Errorf("%q", n.Warnings())
	}
	if r, _ := n.on(condorService); len(r.Closed) != 1 {
		t.Errorf("while no startd is seen: %+v", r)
	}
	if err := n.OpenOutside(); err != nil {
		t.Fatal(err)
	}
	if _, on := n.on(condorService); on {
		t.Error("the rule stays")
	}
}

// TestGraphicsAfterAMove: HTCondor's daemons were in the service's own cgroup. A job below it takes their rule back, and
// the one about graphics comes again.
func TestGraphicsAfterAMove(t *testing.T) {
	n := withGPUs(t, 1)
	n.Nodes.proc.Sys = filepath.Join(n.proc.Root, "sys")
	n.graphics("1", "129")
	n.Round(sharing(1), time.Now())
	const daemons = condorService + "/daemons"
	n.cgroup(daemons)
	n.proc.Add(proctree.Process{PID: proctree.Startd, Parent: condorMaster, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd", Cgroup: daemons})
	n.Round(sharing(1), time.Now())
	if err := n.Starts(sharing(1), starter.Caller{Leaf: starter.Leaf{Path: condorService + "/htcondor/job"}}); err != nil {
		t.Fatal(err)
	}
	n.Round(sharing(1), time.Now())
	if r, _ := n.on(condorService); len(r.Closed) != 1 || r.Closed[0].Major != 226 {
		t.Errorf("%+v", r)
	}
}

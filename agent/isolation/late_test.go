package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// comes lets starters be found, some more than once.
func (n *node) comes(s ...starter.Starter) {
	n.others.arrived = func(time.Time) ([]starter.Starter, error) { return s, nil }
}

// TestLateWithoutGPU: a job that is in no table gets a rule, is late once, and loses the rule at its end.
func TestLateWithoutGPU(t *testing.T) {
	n := newNode(t)
	n.comes()
	n.Round(now(), time.Now())
	s := n.starter(100, 1)
	n.comes(s, s)
	n.Round(now(), time.Now())
	if got := n.rule(s); got != "[]" || n.counts.of(Late) != 0 {
		t.Errorf("it may open %s, counted %v", got, n.counts.by)
	}
	for range 2 {
		n.Round(now(), time.Now().Add(LateAfter))
	}
	if n.counts.of(Late) != 1 || strings.Count(n.said.String(), "a job without a GPU ran before") != 1 || len(n.others.found) != 1 {
		t.Errorf("counted %v, starters %v: %s", n.counts.by, n.others.found, n.said)
	}
	n.comes()
	n.proc.End(s.PID + 1000)
	n.proc.End(s.PID)
	n.Round(now(), time.Now())
	if got := n.rule(s); got != "none" || len(n.others.found) > 0 {
		t.Errorf("after its end it may open %s, starters %v", got, n.others.found)
	}
}

// TestLateLeavesOthers: which jobs the search for those without a GPU leaves alone.
func TestLateLeavesOthers(t *testing.T) {
	for name, test := range map[string]struct {
		bend func(*node, *Conditions, starter.Starter)
		rule string
		late int
	}{
		"not supervised": {func(_ *node, c *Conditions, _ starter.Starter) { c.Supervised = false }, "none", 0},
		"not planned":    {func(_ *node, c *Conditions, _ starter.Starter) { c.Planned = false }, "none", 0},
		"not told of":    {func(n *node, _ *Conditions, s starter.Starter) { n.table.Await([]starter.Starter{s}) }, "none", 0},
		"with a device":  {func(n *node, _ *Conditions, s starter.Starter) { n.admit(s, 7) }, own(7), 1},
		"ended":          {func(n *node, _ *Conditions, s starter.Starter) { n.proc.End(s.PID + 1000) }, "none", 0},
		"from before gpuslotd": {func(n *node, _ *Conditions, _ starter.Starter) {
			n.others.looked = false
		}, "[]", 0},
		"with a rule of its own": {func(n *node, c *Conditions, s starter.Starter) {
			n.admit(s, 7)
			if err := n.CloseAtStart(*c, s, n.table.HeldBy(s), n.leaf(s)); err != nil {
				n.t.Fatal(err)
			}
			n.table.Release(s, mig(7)) // as seen by a round that looked just before its admission
		}, own(7), 0},
	} {
		n, c := newNode(t), now()
		n.comes()
		n.Round(c, time.Now())
		s := n.starter(100, 1)
		n.comes(s)
		test.bend(n, &c, s)
		n.Round(c, time.Now())
		n.Round(c, time.Now().Add(LateAfter))
		if got := n.rule(s); got != test.rule || n.counts.of(Late) != test.late {
			t.Errorf("%s: it may open %s, counted %v", name, got, n.counts.by)
		}
	}
}

// counting are processes that count how often a job's cgroup is looked for.
type counting struct {
	Processes
	looks int
}

func (c *counting) JobCgroup(s starter.Starter) string {
	c.looks++
	return c.Processes.JobCgroup(s)
}

// TestLateLooksOnce: a job without a GPU that has its rule is looked for no more, and one with a GPU
// never has the rule of one without.
func TestLateLooksOnce(t *testing.T) {
	n := newNode(t)
	c := &counting{Processes: n.processes}
	n.processes = c
	idle := n.starter(150, 5)
	n.proc.End(idle.PID + 1000)
	n.comes(n.starter(100, 1), idle)
	n.Round(now(), time.Now())
	n.Round(now(), time.Now().Add(LateAfter))
	if n.Round(now(), time.Now().Add(LateAfter)); c.looks != 2+3 {
		t.Errorf("%d looks", c.looks)
	}
	login := n.starter(300, 3)
	n.comes(login)
	const leaf = "/htcondor/_x_slot1_3@wn1/sshd.slice/sshd.scope"
	if err := os.MkdirAll(filepath.Join(n.root, leaf), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.CloseAtStart(now(), login, nil, leaf); err != nil {
		t.Fatal(err)
	}
	if n.Round(now(), time.Now()); n.rule(login) != "[]" {
		t.Errorf("after a login to it the job may open %s", n.rule(login))
	}
	s := n.job(200, 2)
	n.comes(s)
	if n.others.close(n.Nodes, now(), n.Nodes.proc.Read, time.Now()); n.rule(s) != "none" {
		t.Errorf("the job with a GPU may open %s", n.rule(s))
	}
}

// TestWithoutPlan: an agent that has no plan warns of no job: which instance each has is not known to it.
func TestWithoutPlan(t *testing.T) {
	n := newNode(t)
	n.job(100, 1)
	n.Round(Conditions{Instances: InstancesOnly([]gpu.UUID{uuid(0)})}, time.Now())
	if len(n.Warnings()) > 0 || n.counts.of(Missing) > 0 {
		t.Errorf("warns %v, counted %v", n.Warnings(), n.counts.by)
	}
}

// TestInstancesOf: a GPU or device that was not read stays as it was, one that was read is as it is.
func TestInstancesOf(t *testing.T) {
	device := gpu.MIGDevice{UUID: mig(3), GPUInstance: 3}
	divided := gpu.GPU{UUID: uuid(0), MIGEnabled: true, MIGDevices: []gpu.MIGDevice{device}}
	empty := gpu.GPU{UUID: uuid(0), MIGEnabled: true}
	another := gpu.GPU{UUID: uuid(0), MIGEnabled: true, MIGDevices: []gpu.MIGDevice{{UUID: mig(4), GPUInstance: 3}}}
	other := gpu.GPU{UUID: uuid(1)}
	before := InstancesOf(gpu.Inventory{GPUs: []gpu.GPU{divided, other}}, nil)
	for name, c := range map[string]struct {
		gpus   []gpu.GPU
		before Instances
		want   []gpu.UUID
		device bool
	}{
		"all":                     {[]gpu.GPU{divided, other}, before, []gpu.UUID{uuid(0)}, true},
		"the divided is missing":  {[]gpu.GPU{other}, before, []gpu.UUID{uuid(0)}, true},
		"nothing":                 {nil, before, []gpu.UUID{uuid(0)}, true},
		"without its devices":     {[]gpu.GPU{empty, other}, before, []gpu.UUID{uuid(0)}, true},
		"another has the place":   {[]gpu.GPU{another, other}, before, []gpu.UUID{uuid(0)}, false},
		"not in MIG mode":         {[]gpu.GPU{{UUID: uuid(0)}, other}, before, nil, false},
		"missing from the start":  {[]gpu.GPU{other}, nil, nil, false},
		"known by the plan alone": {[]gpu.GPU{other}, InstancesOnly([]gpu.UUID{uuid(0)}), []gpu.UUID{uuid(0)}, false},
	} {
		got := InstancesOf(gpu.Inventory{GPUs: c.gpus}, c.before)
		if !slices.Equal(got.Divided(), c.want) || (Conditions{Instances: got}).Divided() != (c.want != nil) {
			t.Errorf("%s: divided are %v", name, got.Divided())
		}
		if has, known := got[uuid(1)]; !known || len(has) > 0 {
			t.Errorf("%s: the other GPU has %v, known %t", name, has, known)
		}
		if want := []devices.Instance{{GPU: uuid(0), ID: 3}}; slices.Equal(got[mig(3)], want) != c.device {
			t.Errorf("%s: the device has %v", name, got[mig(3)])
		}
		_, was := c.before[mig(3)]
		if has, known := InstancesOf(gpu.Inventory{}, got)[mig(3)]; known != was || !slices.Equal(has, got[mig(3)]) {
			t.Errorf("%s: the next reading knows %v of the device, %t", name, has, known)
		}
	}
}

// TestPlaceThatCannotBeRead: a job keeps its device by the name of its place while only the place cannot be read. A
// later device with that instance does not get it.
func TestPlaceThatCannotBeRead(t *testing.T) {
	start := 0
	at := func(d gpu.MIGDevice) gpu.Inventory {
		return gpu.Inventory{GPUs: []gpu.GPU{{UUID: uuid(0), MIGEnabled: true, MIGDevices: []gpu.MIGDevice{d}}}}
	}
	d := gpu.MIGDevice{UUID: mig(7), Profile: "1g.5gb", GPUInstance: 7, Start: &start}
	place := gpu.PlaceID(uuid(0), "1g.5gb@0")
	read := InstancesOf(at(d), nil)
	d.Start = nil
	if of := InstancesOf(at(d), read); len(of[place]) != 1 || of[place][0].ID != 7 {
		t.Errorf("its place has %v", of[place])
	}
	d.UUID = mig(8)
	if of := InstancesOf(at(d), read); len(of[place]) > 0 || len(of[mig(8)]) != 1 {
		t.Errorf("after another device came: %v", of)
	}
}

// TestWhereGPUsAreDivided: a job that has a whole GPU has all instances where the site has divided it, and none where
// gpuslot gives out devices, also while it is not known what comes of it.
func TestWhereGPUsAreDivided(t *testing.T) {
	bySite, byUs, whole := uuid(0), uuid(1), uuid(2)
	of := InstancesOf(gpu.Inventory{GPUs: []gpu.GPU{{UUID: bySite, MIGEnabled: true}, {UUID: byUs, MIGEnabled: true}, {UUID: whole}}}, nil)
	of.Divide([]gpu.UUID{byUs})
	for name, of := range map[string]Instances{"now": of, "between": Between(of, InstancesOf(gpu.Inventory{}, of)),
		"not read": InstancesOf(gpu.Inventory{}, of), "before": Between(of, Instances{whole: nil})} {
		c := Conditions{Instances: of}
		for u, want := range map[gpu.UUID][]devices.Instance{bySite: {{GPU: bySite, All: true}}, byUs: nil, whole: nil} {
			if got, err := c.instancesFor(jobs.Job{GPU: u}); !slices.Equal(got, want) || err != nil {
				t.Errorf("%s, %s: %v, %v", name, u, got, err)
			}
		}
		if got := of.Divided(); !slices.Equal(got, []gpu.UUID{bySite, byUs}) {
			t.Errorf("%s: divided are %v", name, got)
		}
	}
}

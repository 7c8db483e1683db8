package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// sees is a round with another reading of the hardware, as all parts of the agent go on from it.
func (n *nodesAgent) sees(inv gpu.Inventory, err error) {
	n.hw.set(inv, err)
	n.apply(false)
	n.round()
	n.linkSupervisors()
}

// wantPromised wants what stands until it is taken back.
func (n *nodesAgent) wantPromised(when string) {
	n.t.Helper()
	if word, err := os.Readlink(filepath.Join(n.view.Load().config.Paths.Run, "condor", "start")); word != api.StartRequired {
		n.t.Errorf("%s supervisors read %q, %v", when, word, err)
	}
	n.wantDaemons("[]")
}

// wantClosed wants the node to keep what it promised while a GPU may be divided.
func (n *nodesAgent) wantClosed(when string) {
	n.t.Helper()
	n.wantPromised(when)
	if !n.view.Load().isolation().Divided() {
		n.t.Errorf("%s the node counts as undivided", when)
	}
}

// TestBlindRestart: a gpuslotd that cannot read the GPUs keeps what the one before promised, and starts no job.
func TestBlindRestart(t *testing.T) {
	n := newNodesAgent(t)
	n.daemonsIn(daemonsCgroup)
	n.sees(n.hw.inv, nil)
	n.wantClosed("before")
	whole := n.hw.inv
	n.hw.set(gpu.Inventory{}, errors.New("Driver/library version mismatch"))
	n.again()
	n.sees(gpu.Inventory{}, errors.New("Driver/library version mismatch"))
	if n.view.Load().planned {
		t.Fatal("it has a plan")
	}
	n.wantClosed("while it sees nothing")
	without := n.proc.starter(300, "slot3_1")
	n.process(without)
	if why := n.starts(without, "slot3_1"); !strings.HasPrefix(why, "no GPU of this node takes jobs yet") {
		t.Errorf("a job without a GPU is refused with %q", why)
	}
	if err := os.Remove(n.view.Load().config.Paths.PlanFile()); err != nil {
		t.Fatal(err)
	}
	plan := n.before.plan
	n.again() // nothing says that the node was divided but what the agent before promised
	n.sees(gpu.Inventory{}, errors.New("Driver/library version mismatch"))
	n.wantPromised("without the plan")
	if err := writePlan(n.view.Load().config.Paths, plan); err != nil {
		t.Fatal(err)
	}
	n.again()
	other := whole
	other.GPUs = whole.GPUs[1:]
	n.sees(other, nil)
	n.wantClosed("while it sees the other GPU")
	n.again()
	n.sees(other, nil)
	n.wantClosed("after one more restart")
	n.sees(whole, nil)
	n.wantClosed("when it sees all")
	undivided := inventoryOf(2)
	n.writeConfig("")
	n.Agent.apply(t.Context(), true)
	n.sees(undivided, nil)
	if n.view.Load().isolation().Divided() {
		t.Error("a GPU that was read without MIG mode counts as divided")
	}
	n.wantDaemons("none")
}

// TestPlanOfEarlierVersion: a plan without the list of divided GPUs tells of them by its MIG devices. On a
// node that was observed gpuslot kept no job from them.
func TestPlanOfEarlierVersion(t *testing.T) {
	p := newNodesAgent(t).view.Load().plan
	want := []gpu.UUID{uuid(0)}
	if !slices.Equal(p.Divided, want) || !slices.Equal(layouts.Isolated(p), want) {
		t.Errorf("the plan says %v and %v", p.Divided, layouts.Isolated(p))
	}
	p.Divided = nil
	if got := layouts.Isolated(p); !slices.Equal(got, want) {
		t.Errorf("divided are %v", got)
	}
	p.Observe = true
	if got := layouts.Isolated(p); len(got) > 0 {
		t.Errorf("observed: %v", got)
	}
}

// TestOneReadingWithoutTheGPU: a reading that leaves the divided GPU out changes nothing for jobs without a GPU: they
// begin with their rule, and HTCondor goes on starting them through their supervisors.
func TestOneReadingWithoutTheGPU(t *testing.T) {
	for name, less := range map[string]func(all []gpu.GPU) []gpu.GPU{
		"without the GPU": func(all []gpu.GPU) []gpu.GPU { return all[1:] },
		"without its devices": func(all []gpu.GPU) []gpu.GPU {
			all[0].MIGDevices = []gpu.MIGDevice{}
			return all
		},
	} {
		n := newNodesAgent(t)
		n.daemonsIn(daemonsCgroup)
		whole := n.hw.inv
		n.sees(whole, nil)
		one := whole
		one.GPUs = less(slices.Clone(whole.GPUs))
		n.sees(one, nil)
		n.wantClosed(name)
		if text := n.read(n.view.Load().config.Paths.CondorConfig()); !strings.Contains(text, "-starts ") {
			t.Errorf("%s: HTCondor does not ask whether jobs without a GPU start", name)
		}
		without := n.proc.starter(300, "slot3_1")
		n.process(without)
		if why := n.starts(without, "slot3_1"); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		n.want("slot3_1", "[]")
	}
}

// TestLateWithoutGPU: a job without a GPU that began before the node was divided gets its rule late. A job that
// begins with one keeps it, also one that the startd has not told of.
func TestLateWithoutGPU(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	n.round()
	before := n.job(100, "slot1_1", small)
	unknown := n.proc.starter(950, "slot9_1")
	n.process(unknown)
	n.jobs.Await([]starter.Starter{unknown})
	without := n.proc.starter(300, "slot3_1")
	n.process(without)
	for range 2 {
		n.round()
		n.want(before.Slot, own)
		n.want(without.Slot, "[]")
		n.want(unknown.Slot, "none")
	}
	if n.counts("late") != 0 {
		t.Error("late before its supervisor could ask")
	}
	for range 2 {
		n.nodes.Round(n.view.Load().isolation(), time.Now().Add(isolation.LateAfter))
	}
	if n.counts("late") != 2 || strings.Count(n.said.String(), "a job without a GPU ran before") != 1 {
		t.Errorf("late %v: %s", n.counts("late"), n.said.String())
	}
	n.proc.End(without.PID)
	n.round()
	n.want(without.Slot, "none")
}

// TestAgentLooksForStarters: an agent finds the jobs without a GPU by itself.
func TestAgentLooksForStarters(t *testing.T) {
	n := newNodesAgent(t)
	n.process(n.proc.starter(300, "slot3_1"))
	o := n.options()
	o.DeviceNodes, o.cgroupRoot = n.kernel, n.root
	a, err := newAgent(o, n.view.Load().config)
	if err != nil {
		t.Fatal(err)
	}
	n.Agent = a
	n.apply(true)
	n.round()
	n.want("slot3_1", "[]")
}

// TestNodesOfALostDevice: a job whose MIG device is gone opens no other one that has the instance now. While nothing
// has it, the device may be there and not answer.
func TestNodesOfALostDevice(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	job := n.job(100, "slot1_1", small)
	n.round()
	inv := n.hw.inv
	devices := inv.GPUs[0].MIGDevices
	g, _ := n.view.Load().plan.GPU(small)
	at := slices.IndexFunc(devices, func(d gpu.MIGDevice) bool { return d.UUID == g.Device })
	reads := func(devices []gpu.MIGDevice) {
		inv.GPUs = slices.Clone(inv.GPUs)
		inv.GPUs[0].MIGDevices = devices
		n.sees(inv, nil)
	}
	without := slices.Delete(slices.Clone(devices), at, at+1)
	reads(without)
	n.want(job.Slot, own)
	next := devices[at]
	next.UUID = "MIG-99999999-0000-5000-8000-000000000000"
	reads(append(without, next))
	n.want(job.Slot, "[]")
}

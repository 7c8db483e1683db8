package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// takes is a node with a MIG device of a profile, on which the processes given to sees
// compute.
func takes(t *testing.T, more, profile string) (n *nodesAgent, place gpu.UUID, sees func(pids ...int)) {
	t.Helper()
	n = newNodesAgent(t)
	n.writeConfig(migConfig("3g.20gb, 1g.5gb*2", more))
	n.again()
	n.apply(false)
	place, _ = n.device(profile, 0)
	g, _ := n.view.Load().plan.Find(place)
	r := gpu.Reading{GPU: g.Parent, At: time.Now().Add(time.Hour), MIGEnabled: true,
		Instances: []gpu.InstanceReading{{UUID: g.Device}}}
	source := &fakeUsage{[]gpu.Reading{r}}
	n.reads(source)
	return n, place, func(pids ...int) {
		list := []gpu.DeviceProcess{}
		for _, pid := range pids {
			list = append(list, gpu.DeviceProcess{PID: pid})
		}
		source.readings[0].Instances[0].Processes = gpu.Known(list)
		n.sampling.Round(t.Context())
	}
}

// closed is why the startd keeps jobs from a GPU or MIG device.
func (n *nodesAgent) closed(u gpu.UUID) string {
	for _, acceptance := range n.answers.acceptances() {
		if acceptance.UUID == string(u) {
			return acceptance.Reason
		}
	}
	return "it is not offered"
}

// TestTakenInstance: a MIG device on which a process computes, while no job has it, takes no
// job until that process ends. It may have got the device's nodes from a job that has ended.
func TestTakenInstance(t *testing.T) {
	n, place, sees := takes(t, "", "1g.5gb")
	gives := n.job(100, "slot1_1", place)
	n.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "other", Cgroup: proctree.CgroupOf("slot3_1")})
	sees(1100, 300)
	if why := n.closed(place); why != "" {
		t.Errorf("closed while its job runs: %s", why)
	}
	n.end(gives)
	if why := n.closed(place); !strings.Contains(why, "process 300 computes on it, and no job has it") {
		t.Errorf("the reason is %q", why)
	}
	refusal := n.refuse(n.proc.starter(101, "slot1_1"), 1001, "bob", place, 1024)
	if refusal.Code != api.CodeClosed || !strings.Contains(refusal.Reason, "process 300") {
		t.Errorf("%+v", refusal)
	}
	n.proc.End(300) // nobody waits for the next sample
	if why := n.closed(place); why != "" {
		t.Errorf("still closed: %s", why)
	}
	n.grant(n.proc.starter(102, "slot1_1"), 1001, "bob", place, 1024)
}

// TestBesideMPSOnInstance: the same of a MIG device that jobs share, also while they run.
func TestBesideMPSOnInstance(t *testing.T) {
	n, place, sees := takes(t, "mig_mps = true\n", "3g.20gb")
	if why := n.closed(place); why != "" {
		t.Fatalf("closed from the start: %s", why)
	}
	n.job(100, "slot1_1", place)
	n.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "other", Cgroup: proctree.CgroupOf("slot3_1")})
	sees(1100, 300)
	if why := n.closed(place); !strings.Contains(why, "process 300, which is no job's, computes on it without MPS") {
		t.Errorf("the reason is %q", why)
	}
	n.proc.End(300)
	if why := n.closed(place); why != "" {
		t.Errorf("still closed: %s", why)
	}
}

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/isolation"
)

// TestLateNodes: a job that runs without a rule is warned of after ten seconds, and
// one whose supervisor does not ask for it is counted.
func TestLateNodes(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	st := n.proc.starter(100, "slot1_1")
	n.grant(st, 1000, "alice", small, 1024)
	n.round()
	if n.warns() != "" {
		t.Errorf("warns at once: %s", n.warns())
	}
	n.nodes.Round(n.view.Load().isolation(), time.Now().Add(isolation.LateAfter))
	if !strings.Contains(n.warns(), "no process of it is in a cgroup of HTCondor's below its starter") || n.counts("missing") != 1 {
		t.Errorf("warns %q, counts %v", n.warns(), n.counts("missing"))
	}
	n.process(st)
	n.round()
	n.want("slot1_1", own)
	if n.warns() != "" || n.counts("late") != 0 {
		t.Errorf("warns %q, counts %v late before its supervisor could ask", n.warns(), n.counts("late"))
	}
	for range 2 {
		n.nodes.Round(n.view.Load().isolation(), time.Now().Add(isolation.LateAfter))
	}
	if n.warns() != "" || n.counts("late") != 1 || !strings.Contains(n.said.String(), "a job ran before") {
		t.Errorf("warns %q, counts %v: %s", n.warns(), n.counts("late"), n.said.String())
	}
	n.proc.End(st.PID + 1000) // its files are being sent
	n.nodes.Round(n.view.Load().isolation(), time.Now().Add(isolation.LateAfter))
	if n.warns() != "" {
		t.Errorf("warns of a job that has ended: %s", n.warns())
	}
	n.proc.End(st.PID) // the job table has it until it is swept
	n.nodes.Round(n.view.Load().isolation(), time.Now().Add(isolation.LateAfter))
	if n.warns() != "" || n.counts("missing") != 1 {
		t.Errorf("warns of a starter that has ended: %q, counts %v", n.warns(), n.counts("missing"))
	}
}

// counts is gpuslot_device_rules_total.
func (n *nodesAgent) counts(when string) float64 {
	n.t.Helper()
	all, err := n.metrics.Gatherer().Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "gpuslot_device_rules_total" && m.GetLabel()[0].GetValue() == when {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestRoundBeforeSupervisor: a round that closes the nodes between the start of a
// supervisor and its question makes no job late.
func TestRoundBeforeSupervisor(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	st := n.job(100, "slot1_1", small)
	n.round()
	n.want("slot1_1", own)
	if why := n.starts(st, "slot1_1"); why != "" {
		t.Fatal(why)
	}
	n.nodes.Round(n.view.Load().isolation(), time.Now().Add(isolation.LateAfter))
	if n.counts("late") != 0 || n.counts("in-time") != 1 || strings.Contains(n.said.String(), "a job ran before") {
		t.Errorf("counts %v late, %v in time: %s", n.counts("late"), n.counts("in-time"), n.said.String())
	}
}

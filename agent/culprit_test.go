package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

func faultLine(pid int) string {
	return fmt.Sprintf("%sVolta MPS Server: Client process %d encountered a fatal GPU error.", logStamp, pid)
}

// TestCulprit: the job of the named process is in the reason, in the log's words,
// when the process runs and when it has ended.
func TestCulprit(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  []string
		want string
	}{
		{"runs", []string{faultLine(500)}, "(its log names process 500 of job 1_1.0 (slot1_1, alice))"},
		{"has ended", []string{faultLine(501)}, "(its log names process 501 of job 1_1.0 (slot1_1, alice))"},
		{"forged first", []string{faultLine(1), faultLine(600), faultLine(500)}, "(its log names process 500 of job 1_1.0"},
		{"nobody's", []string{faultLine(4)}, "(its log names process 4, which is of no job of gpuslot there)"},
		{"another GPU's", []string{faultLine(600)}, "(its log names process 600, which is of no job of gpuslot there)"},
		{"not named", []string{"nothing"}, "a client met a fatal GPU error, and it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ta, f := newFaultAgent(t)
			f.log = tt.log
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = serverIn(mps.Faulted, 500) })
			for range 3 + 2 {
				ta.apply(false)
			}
			if why := ta.reason(0); !strings.Contains(why, tt.want) || !strings.Contains(why, "is in FAULT") {
				t.Errorf("reason %q, want %q", why, tt.want)
			}
			if n := ta.count("gpuslot_mps_faults_total"); n != 1 {
				t.Errorf("%v faults are counted", n)
			}
			reads := strings.Count(f.since(), "log")
			if named := strings.Contains(tt.want, "names"); named && reads != 1 || !named && reads != 3 {
				t.Errorf("the log was read %d times", reads)
			}
		})
	}
}

// newFaultAgent has alice's job 1_1.0 on GPU 0, whose process 500 runs and whose
// process 501 a sample has shown, and bob's process 600 on GPU 1.
func newFaultAgent(t *testing.T) (*testAgent, *fakeServers) {
	ta := newTestAgent(t, 2, "")
	f := &fakeServers{fakeDaemons: ta.daemons}
	ta.keeper.Servers, ta.keeper.Logs = f, f
	for i, owner := range []string{"alice", "bob"} {
		slot := fmt.Sprintf("slot1_%d", i+1)
		s := ta.proc.starter(100+i, slot)
		ta.grant(s, uint32(1000+i), owner, uuid(i), 4096)
		ta.proc.Add(proctree.Process{PID: 500 + 100*i, Parent: s.PID, Comm: "python3", UID: uint32(1000 + i), Cgroup: proctree.CgroupOf(slot)})
	}
	var seen []rules.Job
	for _, r := range ta.jobs.Running() {
		seen = append(seen, rules.Job{Job: r, PIDs: []int{501}})
	}
	ta.culprits.Note(seen[0].Job, seen[0].PIDs, time.Now())
	ta.apply(false)
	f.since()
	return ta, f
}

// TestCulpritStays: the reason of the pause after a fault names it, too, until
// the next one.
func TestCulpritStays(t *testing.T) {
	ta, f := newFaultAgent(t)
	set := func(status mps.ServerStatus) {
		ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = serverIn(status) })
		ta.apply(false)
	}
	for range 3 {
		f.log = []string{faultLine(500)}
		set(mps.Faulted)
		set(mps.Active)
	}
	if why := ta.reason(0); !strings.Contains(why, "3 fatal GPU errors") || !strings.Contains(why, "its log names process 500") {
		t.Errorf("reason %q", why)
	}
	f.log = nil
	set(mps.Faulted)
	if why := ta.reason(0); strings.Contains(why, "500") {
		t.Errorf("the next fault has the culprit of the last: %q", why)
	}
	if n := ta.count("gpuslot_mps_faults_total"); n != 4 {
		t.Errorf("%v faults are counted", n)
	}
}

func serverIn(status mps.ServerStatus, clients ...int) []mps.Server {
	return []mps.Server{{ID: process.ID{PID: 50}, Status: status, Clients: clients}}
}

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

func faultLine(pid int) string {
	return fmt.Sprintf("%sVolta MPS Server: Client process %d encountered a fatal GPU error.", logStamp, pid)
}

func TestAccused(t *testing.T) {
	got := accused([]string{
		"x", logStamp + "Volta MPS Server: Server is handling a fatal GPU error.", faultLine(9),
		logStamp + "Volta MPS: Server is handling a fatal GPU error. Client 8 encountered it", faultLine(9),
	})
	if !slices.Equal(got, []int{9, 8}) {
		t.Errorf("accused are %v", got)
	}
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
		{"nobody's", []string{faultLine(4)}, "(its log names process 4, which is of no job that gpuslot knows there)"},
		{"another GPU's", []string{faultLine(600)}, "(its log names process 600, which is of no job that gpuslot knows there)"},
		{"not named", []string{"nothing"}, "a client met a fatal GPU error, and it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ta, f := newFaultAgent(t)
			f.log = tt.log
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = serverIn(mps.Faulted, 500) })
			for range blameLooks + 2 {
				ta.apply(false)
			}
			if why := ta.reason(0); !strings.Contains(why, tt.want) || !strings.Contains(why, "is in FAULT") {
				t.Errorf("reason %q, want %q", why, tt.want)
			}
			if n := ta.count("gpuslot_mps_faults_total"); n != 1 {
				t.Errorf("%v faults are counted", n)
			}
			reads := strings.Count(f.since(), "log")
			if named := strings.Contains(tt.want, "names"); named && reads != 1 || !named && reads != blameLooks {
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
	ta.servers = f
	for i, owner := range []string{"alice", "bob"} {
		slot := fmt.Sprintf("slot1_%d", i+1)
		s := ta.proc.starter(100+i, slot)
		ta.grant(s, uint32(1000+i), owner, uuid(i), 4096)
		ta.proc.Add(proctree.Process{PID: 500 + 100*i, Parent: s.PID, Comm: "python3", UID: uint32(1000 + i), Cgroup: proctree.CgroupOf(slot)})
	}
	var seen []watched
	for _, r := range ta.jobs.Running() {
		seen = append(seen, watched{Job: r, PIDs: []int{501}})
	}
	ta.faces.note(seen[:1], time.Now())
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
	for range serverFlapsFree + 1 {
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
	if n := ta.count("gpuslot_mps_faults_total"); n != serverFlapsFree+2 {
		t.Errorf("%v faults are counted", n)
	}
}

// TestCulpritOfAnEvent: the reason that an XID gives has the name, too, while the
// server is in FAULT for it.
func TestCulpritOfAnEvent(t *testing.T) {
	s := serverState{faulted: time.Unix(1, 0), culprit: "process 5 of job 7.0"}
	for _, tt := range []struct {
		v    faults.Verdict
		s    serverState
		want string
	}{
		{faults.Verdict{Class: faults.ClosedForServer, Reason: "Xid 31"}, s, "Xid 31 (its log names process 5 of job 7.0)"},
		{faults.Verdict{Class: faults.ClosedForServer, Reason: "Xid 31"}, serverState{culprit: "a former one"}, "Xid 31"},
		{faults.Verdict{Class: faults.ClosedForReset, Reason: "Xid 119"}, s, "Xid 119"},
		{faults.Verdict{}, s, ""},
	} {
		if got := because(tt.v, tt.s); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestFacesAreForgotten, so that their number is bounded, and a newer job's
// process of the same number counts.
func TestFacesAreForgotten(t *testing.T) {
	var f faces
	at := time.Unix(1000, 0)
	job := func(name string) jobs.Job { return jobs.Job{ID: name, GPU: uuid(0)} }
	f.note([]watched{{Job: job("1.0"), PIDs: []int{5, 6}}}, at)
	f.note([]watched{{Job: job("2.0"), PIDs: []int{6}}}, at.Add(faceKept))
	if r, ok := f.of(6, uuid(0)); !ok || r.ID != "2.0" {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := f.of(5, uuid(1)); ok {
		t.Error("a process is of another GPU, too")
	}
	f.note(nil, at.Add(faceKept+1))
	if _, ok := f.of(5, uuid(0)); ok || len(f.by) != 1 {
		t.Errorf("it is remembered for ever: %v", f.by)
	}
}

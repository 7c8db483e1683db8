package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/test/proctree"
)

func (ta *testAgent) entry(slot string) jobs.Job {
	ta.t.Helper()
	for _, r := range ta.jobs.Running() {
		if r.Starter.Slot == slot {
			return r
		}
	}
	ta.t.Fatalf("%s is not in the job table", slot)
	return jobs.Job{}
}

// TestAccess: access lasts from the admission of an account's first job on a
// GPU to the end of its last.
func TestAccess(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	var log strings.Builder
	ta.sweeper.log = slog.New(slog.NewTextHandler(&log, nil))
	first, second := ta.proc.starter(100, "slot1_1"), ta.proc.starter(101, "slot1_2")
	ta.grant(first, 1000, "alice", uuid(0), 4096)
	ta.grant(second, 1000, "alice", uuid(0), 4096)
	if ta.access.calls != 1 {
		t.Errorf("%d changes of access for two jobs of one account", ta.access.calls)
	}
	ta.proc.End(100)
	ta.sweeper.now()
	if !ta.access.has(uuid(0), 1000) {
		t.Error("access ended with the first of two jobs")
	}
	const stays = "a pipe directory stays open"
	if strings.Contains(log.String(), stays) {
		t.Errorf("logged: %s", &log)
	}
	ta.proc.End(101)
	ta.access.err = errors.New("a read-only file system")
	if ta.sweeper.now(); !strings.Contains(log.String(), stays) {
		t.Errorf("access that cannot be ended is not logged: %s", &log)
	}
	ta.access.err = nil
	ta.sweeper.now()
	if ta.access.has(uuid(0), 1000) {
		t.Error("access outlives the last job")
	}
	third := ta.proc.starter(102, "slot1_1")
	ta.grant(third, 1000, "alice", uuid(0), 4096)
	if !ta.access.has(uuid(0), 1000) {
		t.Error("no access for a later job")
	}
}

// TestAccessOfANewDaemon: systemd removes the pipe directory of a stopped unit.
func TestAccessOfANewDaemon(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	ta.daemons.kill(uuid(0), false)
	delete(ta.access.in, access.Entry{GPU: uuid(0), UID: 1000})
	ta.apply(false)
	if !ta.access.has(uuid(0), 1000) {
		t.Error("alice's running job lost its access")
	}
	calls := ta.access.calls
	ta.apply(false)
	if ta.access.calls != calls {
		t.Error("access is given again and again")
	}
}

// TestFilesOfDaemonsAreRestricted: each round sees to the files of each daemon, also
// of one that an agent from before left with open files.
func TestFilesOfDaemonsAreRestricted(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	for _, next := range []func(){func() {}, func() { ta.apply(false) }, ta.restart} {
		next()
		for i := range 2 {
			if ta.access.restricted[uuid(i)] == 0 {
				t.Errorf("the files of GPU %d are not restricted", i)
			}
		}
		clear(ta.access.restricted)
	}
}

// TestTenancy: bob waits for alice's last job, and START is told.
func TestTenancy(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	alice, bob := ta.proc.starter(100, "slot1_1"), ta.proc.starter(101, "slot1_2")
	ta.grant(alice, 1000, "alice", uuid(0), 4096)
	if r := ta.refuse(bob, 1001, "bob", uuid(0), 4096); r.Code != api.CodeOtherTenant {
		t.Errorf("refusal = %+v", r)
	}
	if acc := ta.answers.acceptances()[0]; !acc.Accept || acc.Tenant != "alice" {
		t.Errorf("acceptance = %+v", acc)
	}
	// Her job has ended, but nobody has looked yet: bob's admission does.
	ta.proc.End(100)
	ta.grant(bob, 1001, "bob", uuid(0), 4096)
	if ta.access.has(uuid(0), 1000) || !ta.access.has(uuid(0), 1001) {
		t.Error("the pipe directory is not bob's alone")
	}
	if acc := ta.answers.acceptances()[0]; acc.Tenant != "bob" {
		t.Errorf("acceptance = %+v", acc)
	}
}

// TestRestartAdopts: after kill -9 the next agent finds the running slots by
// their starters and the startd, and access by the ACLs.
func TestRestartAdopts(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	first := ta.proc.starter(100, "slot1_1")
	ta.proc.Add(proctree.Process{PID: 110, Parent: 100, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	ta.grant(first, 1000, "alice", uuid(0), 4096)
	ta.grant(ta.proc.starter(101, "slot2_1"), 1001, "bob", uuid(1), 8192)
	ta.proc.starter(102, "slot3_1") // a CPU-only job
	pids := [2]int{ta.daemons.running[uuid(0)].process.PID, ta.daemons.running[uuid(1)].process.PID}
	ta.proc.End(101) // bob's job ends while nobody looks

	ta.startd.set(nil, errors.New("the startd is busy"))
	ta.restart()
	if got := [2]int{ta.daemons.running[uuid(0)].process.PID, ta.daemons.running[uuid(1)].process.PID}; got != pids {
		t.Error("the control daemons did not live on")
	}
	ta.startds.Ask(t.Context())
	if r := ta.refuse(ta.proc.starter(103, "slot1_2"), 1000, "alice", uuid(0), 4096); !strings.Contains(r.Reason, "runs since before gpuslotd started") {
		t.Errorf("with unknown jobs: %q", r.Reason)
	}
	if why := ta.reason(0); !strings.Contains(why, "before gpuslotd started") {
		t.Errorf("START is not told: %q", why)
	}
	ta.sweeper.now()
	if !ta.access.has(uuid(0), 1000) {
		t.Error("access was taken that an unknown job may need")
	}

	none := condor.Slot{Name: "slot3_1@wn1.example.org", Type: "Dynamic", JobID: "9.0", RemoteOwner: "carol@x"}
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "5.0", "alice", 4096, uuid(0)), none}, nil)
	if !ta.startds.Ask(t.Context()) {
		t.Error("open questions are left")
	}
	r := ta.entry("slot1_1")
	if r.GPU != uuid(0) || r.Budget != 4096 || r.ID != "5.0" || r.Account != (starter.Account{UID: 1000, Known: true}) || !r.Confirmed {
		t.Errorf("entry = %+v", r)
	}
	if n := len(ta.jobs.Running()); n != 1 {
		t.Errorf("%d slots are booked, want alice's alone", n)
	}
	ta.sweeper.now()
	if !ta.access.has(uuid(0), 1000) || ta.access.has(uuid(1), 1001) {
		t.Error("access is not that of the running jobs")
	}
	if why := ta.reason(0); why != "" {
		t.Errorf("still closed: %s", why)
	}
	if r := ta.refuse(ta.proc.starter(104, "slot1_3"), 1001, "bob", uuid(0), 4096); r.Code != api.CodeOtherTenant {
		t.Errorf("bob beside alice: %+v", r)
	}
}

// TestRestartAfterAChangedAccount: a job changed its account, as by a setuid program of another
// one, before gpuslotd restarts. It does not pass for a job of that account: only the account
// that has access to the GPU counts.
func TestRestartAfterAChangedAccount(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.proc.Add(proctree.Process{PID: 110, Parent: 100, Comm: "job", UID: 1001, Cgroup: proctree.CgroupOf("slot1_1")})
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "5.0", "", 4096, uuid(0))}, nil)
	ta.restart()
	ta.startds.Ask(t.Context())
	if r := ta.entry("slot1_1"); r.Account.Known {
		t.Errorf("entry = %+v", r)
	}
	ta.sweeper.now()
	if !ta.access.has(uuid(0), 1000) {
		t.Error("access was taken that the job may need")
	}
	if r := ta.refuse(ta.proc.starter(104, "slot1_3"), 1001, "bob", uuid(0), 4096); r.Code != api.CodeOtherTenant {
		t.Errorf("bob beside alice: %+v", r)
	}
}

// TestUnreadableAd: it costs its own slot the startd's word, and no other's. A job of
// before on a GPU that is not known keeps all closed, however often the startd answers.
func TestUnreadableAd(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	for i, slot := range []string{"slot1_1", "slot2_1"} {
		ta.grant(ta.proc.starter(100+i, slot), 1000, "alice", uuid(i), 4096)
	}
	odd := slotAd("slot1_1", "1_1.0", "alice", 8192, uuid(0))
	odd.AssignedGPUs, odd.Unreadable = nil, "AssignedGPUs"
	ta.startd.set([]condor.Slot{odd, slotAd("slot2_1", "2_1.0", "alice", 4096, uuid(1))}, nil)
	for range 2 {
		if ta.startds.Ask(t.Context()) {
			t.Error("the question counts as settled")
		}
	}
	if r := ta.entry("slot1_1"); r.GPU != uuid(0) || r.Budget != 4096 || r.Confirmed {
		t.Errorf("entry = %+v", r)
	}
	if !ta.entry("slot2_1").Confirmed {
		t.Error("the other slot is not confirmed")
	}
	const said = "ad of slot1_1 has attributes that cannot be read: AssignedGPUs"
	warnings := strings.Join(ta.status().Warnings, "\n")
	if strings.Count(warnings, said) != 1 || strings.Contains(warnings, "does not tell") {
		t.Errorf("status does not show the slot alone: %s", warnings)
	}
	ta.restart()
	for range jobs.MostAsked + 1 {
		ta.startds.Ask(t.Context())
	}
	if !ta.entry("slot2_1").Confirmed || !strings.Contains(ta.reason(1), "slot1_1 runs since before") {
		t.Errorf("after a restart: %+v, %q", ta.entry("slot2_1"), ta.reason(1))
	}
	odd.AssignedGPUs, odd.Unreadable = []string{string(uuid(0))}, ""
	ta.startd.set([]condor.Slot{odd, slotAd("slot2_1", "2_1.0", "alice", 4096, uuid(1))}, nil)
	if !ta.startds.Ask(t.Context()) || !ta.entry("slot1_1").Confirmed || ta.reason(1) != "" {
		t.Errorf("once it can be read: %+v, %q", ta.entry("slot1_1"), ta.reason(1))
	}
}

// TestForeignStarter: a starter that the startd does not know is another
// startd's; it must not close this node for ever.
func TestForeignStarter(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.proc.starter(100, "slot1_1")
	ta.restart()
	ta.startd.set([]condor.Slot{slotAd("slot7_7", "1.0", "x", 1, uuid(0))}, nil)
	for range jobs.MostAsked {
		if ta.reason(0) == "" {
			t.Fatal("open before it was asked often enough")
		}
		ta.startds.Ask(t.Context())
	}
	if why := ta.reason(0); why != "" {
		t.Errorf("still closed: %s", why)
	}
}

// TestStarterInAContainer: it belongs to another node that happens to share
// this kernel.
func TestStarterInAContainer(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	for pid, ns := range map[string]string{"self": "pid:[1]", "100": "pid:[2]", "101": "pid:[1]"} {
		if pid != "self" {
			n, _ := strconv.Atoi(pid)
			ta.proc.starter(n, "slot1_"+pid)
		}
		dir := filepath.Join(ta.proc.Root, pid, "ns")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(ns, filepath.Join(dir, "pid")); err != nil {
			t.Fatal(err)
		}
	}
	ta.restart()
	if why := ta.jobs.Unknown(); !strings.HasPrefix(why, "slot1_101 ") {
		t.Errorf("found %q", why)
	}
	ta.proc.End(101)
	if ta.sweeper.now(); ta.jobs.Unknown() != "" {
		t.Errorf("also found: %s", ta.jobs.Unknown())
	}
}

// TestOlderLayout: the startd was started before the plan changed.
func TestOlderLayout(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	v := ta.view.Load()
	now := condor.Startds(ta.htcondor.node(v))[0].Plan
	text, err := condor.ExecutionPoint(ta.htcondor.node(v))
	if err != nil {
		t.Fatal(err)
	}
	says := func(plan string) bool {
		var slots []condor.Slot
		for i, layout := range condor.Startds(ta.htcondor.node(v))[0].Layout {
			slots = append(slots, condor.Slot{Name: fmt.Sprintf("slot%d@x", i+1), Type: "Partitionable", Plan: plan, Config: condor.ConfigOf(text), Layout: layout})
		}
		ta.startd.set(slots, nil)
		ta.startds.Ask(t.Context())
		return strings.Contains(strings.Join(ta.status().Warnings, "\n"), "STARTD runs an older layout")
	}
	if says(now) {
		t.Error("the right layout counts as older")
	}
	if !says("0123456789abcdef") || !says("") {
		t.Error("another layout is not noticed")
	}
	if n := ta.count("gpuslot_startd_older_layout"); n != 1 {
		t.Errorf("metric = %g", n)
	}
}

// count is the value of a metric without labels.
func (ta *testAgent) count(name string) float64 {
	ta.t.Helper()
	families, err := ta.metrics.Gatherer().Gather()
	if err != nil {
		ta.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			if m.GetCounter() != nil {
				return m.GetCounter().GetValue()
			}
			return m.GetGauge().GetValue()
		}
	}
	ta.t.Fatalf("no metric %s", name)
	return 0
}

func TestStatus(t *testing.T) {
	ta := newTestAgent(t, 2, "[sharing]\nlargest_request = 8192\n")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 8192)
	ta.grant(ta.proc.starter(101, "slot1_2"), 1000, "alice", uuid(0), 4096)
	s := ta.status()
	if s.Host != "wn1.example.org" || s.Driver != "550.163.01" || s.HTCondor != "25.14.1" || len(s.GPUs) != 2 {
		t.Errorf("status = %+v", s)
	}
	g := s.GPUs[0]
	if g.UsedMiB != 12288 || len(g.Jobs) != 2 || g.Tenant != "alice" || g.LimitMiB != 8192 || g.DaemonPID == 0 || !g.Accept {
		t.Errorf("GPU = %+v", g)
	}
	// The daemon's limit of 8192 holds the first job and not the second.
	if g.Jobs[0].EnforcedBy != jobs.EnforcedByDaemon || g.Jobs[1].EnforcedBy != jobs.EnforcedByNone || g.EnforcedBy != jobs.EnforcedByNone {
		t.Errorf("walls = %s, %s, together %s", g.Jobs[0].EnforcedBy, g.Jobs[1].EnforcedBy, g.EnforcedBy)
	}
	if g.Server != "no server yet (starts with the first job)" {
		t.Errorf("server = %q", g.Server)
	}
	if time.Since(g.ProvedAt) > time.Minute {
		t.Errorf("proved at %s", g.ProvedAt)
	}
}

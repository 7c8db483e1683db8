package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeUsage is a node whose processes the test names.
type fakeUsage struct{ readings []gpu.Reading }

func (f *fakeUsage) Read(context.Context) ([]gpu.Reading, error) { return f.readings, nil }

// TestEndOfAJob: a supervisor's word ends the clients of its own slot, and of
// no other.
func TestEndOfAJob(t *testing.T) {
	s := serveTestAgent(t, 2)
	st := s.in("slot1_1", false)
	other := s.proc.starter(1001, "slot1_2")
	s.grant(st, uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.grant(other, uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.proc.Add(proctree.Process{PID: 200, Parent: 1, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1")})
	s.proc.Add(proctree.Process{PID: 201, Parent: 1000, Comm: "train"}) // in no cgroup, below its starter
	s.proc.Add(proctree.Process{PID: 300, Parent: 1001, Comm: "train", Cgroup: proctree.CgroupOf("slot1_2")})
	var happened []string
	s.daemons.happens = func(what string) { happened = append(happened, what) }
	s.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 50}, Clients: []int{200, 300, 201}}}
	})
	reply, err := s.call(api.Request{Op: api.OpEnd})
	if err != nil || reply.Ended == nil || reply.Ended.Clients != 2 || reply.Ended.Wait != "" {
		t.Fatalf("%+v, %v", reply.Ended, err)
	}
	if !slices.Equal(happened, []string{"end [200 201]"}) {
		t.Errorf("happened: %q", happened)
	}
}

// TestEndOfALogin: a logout ends what the login started, and the job goes on with
// its reservation and without its hold; the job's end leaves the login alone.
func TestEndOfALogin(t *testing.T) {
	const job, login = "/htcondor/_x_slot1_1@wn1.slice/_x_slot1_1@wn1.scope", "/htcondor/_x_slot1_1@wn1/sshd.slice/sshd.scope"
	for name, tt := range map[string]struct {
		inCgroup string // of the caller, of the job's client and of the login's
		job      string
		login    string
		ends     string
		wait     string
	}{
		"a logout":                    {login, job, login + "/a", "[300]", ""},
		"a logout on an old HTCondor": {"/htcondor/_x_slot1_1@wn1/sshd", "/htcondor/_x_slot1_1@wn1", "/htcondor/_x_slot1_1@wn1/sshd", "[300]", ""},
		"the end of the job":          {job, job + "/a", login, "[200]", "too much"},
		"without cgroups":             {"", "", "", "[300]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveTestAgent(t, 1)
			st := s.in("slot1_1", true)
			s.grant(st, uint32(os.Getuid()), "alice", uuid(0), 4096)
			if name != "without cgroups" {
				s.jobs.Hold(st, api.Hold{Slot: "slot1_1", Reason: "too much"})
			}
			s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: st.PID, Comm: "supervise", UID: uint32(os.Getuid()), Cgroup: tt.inCgroup})
			s.proc.Add(proctree.Process{PID: 199, Parent: st.PID, Comm: "supervise", Cgroup: tt.job})
			s.proc.Add(proctree.Process{PID: 200, Parent: 199, Comm: "train", Cgroup: tt.job})
			s.proc.Add(proctree.Process{PID: 300, Parent: os.Getpid(), Comm: "train", Cgroup: tt.login})
			var happened []string
			s.daemons.happens = func(what string) { happened = append(happened, what) }
			s.daemons.change(uuid(0), func(d *fakeDaemon) {
				d.servers = []mps.Server{{ID: process.ID{PID: 50}, Clients: []int{200, 300}}}
			})
			reply, err := s.call(api.Request{Op: api.OpEnd})
			if err != nil || reply.Ended == nil || reply.Ended.Wait != tt.wait || !slices.Equal(happened, []string{"end " + tt.ends}) {
				t.Errorf("%+v, %v; happened %q, want %s", reply.Ended, err, happened, tt.ends)
			}
		})
	}
}

// deaf is a control daemon that does not answer.
type deaf struct{ Clients }

func (deaf) Servers(context.Context, gpu.UUID) ([]mps.Server, error) {
	return nil, errors.New("it does not answer")
}

// TestEndWithoutAnAnswer: clients that are not known are not none.
func TestEndWithoutAnAnswer(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.grant(s.in("slot1_1", false), uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.ender.Clients = deaf{s.clients}
	reply, err := s.call(api.Request{Op: api.OpEnd})
	if err == nil || !strings.Contains(err.Error(), "it does not answer") || reply.Ended != nil {
		t.Errorf("the supervisor hears %+v, %v", reply, err)
	}
}

// TestEndOfTheLast: where no other process of the job is left, whatever the
// daemon has listed, no conversation with it is had.
func TestEndOfTheLast(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.grant(s.in("slot1_1", false), uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.proc.Add(proctree.Process{PID: 200, Parent: 1, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1")})
	var happened []string
	s.daemons.happens = func(what string) { happened = append(happened, what) }
	s.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 50}, Clients: []int{200}}}
	})
	s.ender.Root = t.TempDir()
	procs := filepath.Join(s.ender.Root, proctree.CgroupOf("slot1_1"), "cgroup.procs")
	for text, clients := range map[string]int{"%d\n": 0, "%d\n200\n": 1} {
		put(t, procs, fmt.Sprintf(text, os.Getpid()))
		put(t, filepath.Join(filepath.Dir(filepath.Dir(procs)), "cgroup.procs"), "")
		happened = nil
		reply, err := s.call(api.Request{Op: api.OpEnd})
		if err != nil || reply.Ended == nil || reply.Ended.Clients != clients || len(happened) != clients {
			t.Errorf("%q: %+v, %v, happened %q", text, reply.Ended, err, happened)
		}
	}
}

// TestOverBudget: the whole way from a sample to the hold that the startd and
// the job's supervisor hear of.
func TestOverBudget(t *testing.T) {
	s := serveTestAgent(t, 1)
	st := s.in("slot1_1", false)
	s.grant(st, uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.proc.Add(proctree.Process{PID: 200, Parent: 1, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1")})
	s.proc.Add(proctree.Process{PID: 201, Parent: 200, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1")})
	s.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 50}, Clients: []int{200, 201}}}
	})
	process := func(pid int, mem gpu.MiB) gpu.DeviceProcess {
		return gpu.DeviceProcess{PID: pid, Memory: gpu.Known(gpu.Bytes(mem * mib)), MPSClient: true}
	}
	r := gpu.Reading{GPU: uuid(0), At: s.view.Load().applied}
	r.Processes = gpu.Known([]gpu.DeviceProcess{process(200, 3000), process(201, 3000)})
	s.sampler = usage.NewSampler(usage.Options{Source: &fakeUsage{[]gpu.Reading{r}}, Site: site{s.Agent}, Interval: s.view.Load().config.Usage.Interval, Proc: s.proc.Root})
	s.sampler.Round(t.Context())
	begin := s.view.Load().applied
	b := s.watch(t.Context(), rules.Breaches{}, begin)
	if holds := s.jobs.Holds(); len(holds) > 0 {
		t.Fatalf("held within the grace time: %+v", holds)
	}
	s.watch(t.Context(), b, begin.Add(s.view.Load().config.Budgets.Grace))
	s.ender.Wait()
	want := api.Hold{Slot: "slot1_1", Job: jobOn(st, "alice", uuid(0), 4096).ID, Code: api.CodeOverBudget, Reason: "used 6000 MiB of 4096 MiB requested: ask for request_vram = 6144"}
	if holds := s.jobs.Holds(); len(holds) == 1 && time.Since(holds[0].Since) >= 0 {
		want.Since = holds[0].Since
	}
	reply, err := s.call(api.Request{Op: api.OpMonitor})
	if os.Getuid() == 0 && (err != nil || !slices.Equal(reply.Holds, []api.Hold{want})) {
		t.Errorf("the monitor hears %+v, %v", reply.Holds, err)
	}
	if !slices.Equal(s.jobs.Holds(), []api.Hold{want}) {
		t.Errorf("holds = %+v", s.jobs.Holds())
	}
	if servers, _ := s.daemons.Servers(t.Context(), uuid(0)); len(servers[0].Clients) > 0 {
		t.Errorf("clients %v were not ended", servers[0].Clients)
	}
	shown := filepath.Join(s.view.Load().config.Paths.Run, "condor", "holds")
	if _, err := os.Lstat(shown); err != nil {
		t.Errorf("supervisors do not ask: %v", err)
	}
	ended, err := s.call(api.Request{Op: api.OpEnd})
	if err != nil || ended.Ended == nil || ended.Ended.Wait != want.Reason {
		t.Errorf("the supervisor hears %+v, %v", ended.Ended, err)
	}
	s.proc.End(st.PID)
	s.sweepNow()
	if len(s.jobs.Holds()) > 0 {
		t.Error("the hold outlives its job")
	}
	if err := s.linkHolds(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(shown); err == nil {
		t.Error("supervisors ask without a hold")
	}
}

// TestCap: only a percentage that the job cannot lift bounds what it did.
func TestCap(t *testing.T) {
	yes := mps.Answer{Known: true, Has: true}
	g := daemons.State{Wanted: mps.Wanted{ThreadPercentage: 25}, Proof: mps.Proof{PID: 7}}
	stale := g
	stale.Proof.Stale = []int{50}
	for name, tt := range map[string]struct {
		daemon daemons.State
		checks mps.Answer
		want   float64
	}{
		"enforced": {g, yes, 0.25}, "any account may lift it": {g, mps.Answer{Known: true}, 1}, "not known": {g, mps.Answer{}, 1},
		"a server with other limits": {stale, yes, 1}, "no proof": {daemons.State{Wanted: g.Wanted}, yes, 1},
	} {
		v := &view{daemons: map[gpu.UUID]daemons.State{uuid(0): tt.daemon}}
		v.can.Tried, v.can.MPS.PrivilegeChecks = true, tt.checks
		if got := capOf(v, uuid(0)); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestBlocked: a process beside MPS on an exclusive GPU without a server closes it.
func TestBlocked(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "stray"})
	r := gpu.Reading{GPU: uuid(0), At: time.Now().Add(time.Hour)}
	r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: 300}})
	source := &fakeUsage{[]gpu.Reading{r}}
	ta.sampler = usage.NewSampler(usage.Options{Source: source, Site: site{ta.Agent}, Interval: time.Second, Proc: ta.proc.Root})
	ta.sampler.Round(t.Context())
	if why := ta.reason(0); !strings.Contains(why, "process 300, which is no job's, holds it without MPS") {
		t.Errorf("reason = %q", why)
	}
	if s := ta.status().GPUs[0].Strangers; len(s) != 1 || s[0].PID != 300 || s[0].VRAMMiB != nil {
		t.Errorf("strangers = %+v", s)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = []mps.Server{{ID: process.ID{PID: 50}, Status: mps.Active}} })
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Errorf("closed although a server is there: %s", why)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = nil })
	ta.apply(false)
	source.readings[0].Processes = gpu.Known([]gpu.DeviceProcess{})
	ta.sampler.Round(t.Context())
	if why := ta.reason(0); why != "" {
		t.Errorf("closed although nobody holds it: %s", why)
	}
}

// TestClientOfNoJob: an MPS client that is in no slot, as one that left its job's
// cgroup by other means than processes have, is told: its VRAM counts for nobody.
func TestClientOfNoJob(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.proc.Add(proctree.Process{PID: 200, Parent: 100, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	ta.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "left", UID: 1000})
	r := gpu.Reading{GPU: uuid(0), At: time.Now().Add(time.Hour)}
	r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: 200, MPSClient: true}, {PID: 300, MPSClient: true, Memory: gpu.Known(gpu.Bytes(2000 << 20))}})
	ta.sampler = usage.NewSampler(usage.Options{Source: &fakeUsage{[]gpu.Reading{r}}, Site: site{ta.Agent}, Interval: time.Second, Proc: ta.proc.Root})
	ta.sampler.Round(t.Context())
	got := ta.status().GPUs[0].Strangers
	if len(got) != 1 || got[0].PID != 300 || !got[0].MPSClient || got[0].VRAMMiB == nil || *got[0].VRAMMiB != 2000 {
		t.Errorf("strangers = %+v", got)
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

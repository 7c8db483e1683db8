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
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeUsage is a node whose processes the test names.
type fakeUsage struct{ readings []gpu.Reading }

func (f *fakeUsage) Read(context.Context) ([]gpu.Reading, error) { return f.readings, nil }

// reads has the agent sample a source of the test's.
func (ta *testAgent) reads(source usage.Source) {
	ta.t.Helper()
	if err := ta.newSampling(source, ta.view.Load().config.Usage); err != nil {
		ta.t.Fatal(err)
	}
	ta.sampling.Patience = 5 * time.Minute // a busy machine makes nothing unknown
	ta.connect()
}

// sampledAt takes a sample and judges it as one of another time.
func (ta *testAgent) sampledAt(now time.Time) {
	ta.sampling.Now = func() time.Time { return now }
	ta.sampling.Round(ta.t.Context())
}

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
	s.reads(&fakeUsage{[]gpu.Reading{r}})
	begin := s.view.Load().applied
	s.sampledAt(begin)
	if holds := s.jobs.Holds(); len(holds) > 0 {
		t.Fatalf("held within the grace time: %+v", holds)
	}
	s.sampledAt(begin.Add(s.view.Load().config.Budgets.Grace))
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
	s.sweeper.now()
	if len(s.jobs.Holds()) > 0 {
		t.Error("the hold outlives its job")
	}
	if err := s.links.Holding(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(shown); err == nil {
		t.Error("supervisors ask without a hold")
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

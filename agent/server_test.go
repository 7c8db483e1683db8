package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// served is a test agent behind a real socket, with the test's own process as
// the caller: its place in /proc is made up, its credentials are not.
type served struct {
	*testAgent
	socket string
	cancel context.CancelFunc
	done   chan error
}

func serveTestAgent(t *testing.T, gpus int) *served {
	t.Helper()
	ta := newTestAgent(t, gpus, "")
	s := &served{testAgent: ta, socket: filepath.Join(ta.dir, "s.sock"), done: make(chan error, 1)}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	srv := ta.answers.server(ta.proc.of(4294967), ta.proc.Program("/usr/libexec/gpuslot/gpuslot-condor"))
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(t.Context())
	go func() { s.done <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		s.cancel()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// in puts the test's process into a slot, as a hook or as the job.
func (s *served) in(slot string, hook bool) starter.Starter {
	s.t.Helper()
	st := s.proc.starter(1000, slot)
	p := proctree.Process{PID: os.Getpid(), Parent: 1000, Comm: "prepare", Exe: "/usr/libexec/gpuslot/gpuslot-condor", UID: uint32(os.Getuid())}
	if !hook {
		p.Cgroup = proctree.CgroupOf(slot)
	}
	s.proc.Add(p)
	return st
}

func (s *served) call(req api.Request) (api.Reply, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	return api.Call(ctx, s.socket, req)
}

// TestTurnsOfCallers: what the socket's callers have gpuslotd look up is bounded, of a range in
// /etc/subuid together. Where HTCondor's daemons are is kept.
func TestTurnsOfCallers(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	callers := ta.proc.fs()
	callers.Subuid = filepath.Join(ta.dir, "subuid")
	if err := os.WriteFile(callers.Subuid, []byte("alice:100000:65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := ta.answers.server(callers)
	n, ok := s.Callers.(starter.Node)
	if !ok || n.Turns == nil || ta.Agent.proc.Daemons == nil {
		t.Fatal("it is not")
	}
	if got := s.Owners.Of(100001); got != 100000 {
		t.Errorf("an account of a range is of %d for the server", got)
	}
	if _, err := n.Turns.Deep.Enter(100001); err != nil {
		t.Error(err)
	}
	if _, err := n.Turns.Deep.Enter(100002); !errors.Is(err, room.ErrBusy) {
		t.Errorf("another account of that range: %v", err)
	}
}

func TestServePrepare(t *testing.T) {
	s := serveTestAgent(t, 2)
	st := s.in("slot1_1", true)
	reply, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(st, "alice", uuid(0), 4096)})
	if err != nil || reply.Grant == nil {
		t.Fatalf("%+v, %v", reply, err)
	}
	if got := reply.Grant.Environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]; got != "0=4096M" {
		t.Errorf("limit = %q", got)
	}
	if !s.access.has(uuid(0), uint32(os.Getuid())) {
		t.Error("the pipe directory is not open to the caller's account")
	}
	if all := s.jobs.Running(); len(all) != 1 || all[0].Starter != st || all[0].Account.UID != uint32(os.Getuid()) {
		t.Errorf("jobs = %+v", all)
	}
	s.in("slot1_1", false)
	reply, err = s.call(api.Request{Op: api.OpPrepare, Job: jobOn(st, "alice", uuid(0), 4096)})
	if err != nil || reply.Refusal == nil || !strings.Contains(reply.Refusal.Reason, "only its first question is answered") || len(s.jobs.Running()) != 1 {
		t.Errorf("the job after the hook: %+v, %v", reply, err)
	}
}

// TestServeHook: what gpuslot-start asks is answered with what the hook prints, once.
func TestServeHook(t *testing.T) {
	s := serveTestAgent(t, 1)
	st := s.in("slot1_1", true)
	ad := "Owner = \"alice\"\nRequestGPUs = 1\nRequestVRAM = 4096\nVramProvisioned = 4096\n" +
		"Environment = \"A=1 CUDA_VISIBLE_DEVICES=7\"\n"
	said := &api.Hook{Ad: ad, GPUs: string(uuid(0)), Args: []string{"APPTAINER_BIND=/cvmfs"}}
	reply, err := s.call(api.Request{Op: api.OpHook, Hook: said})
	for _, want := range []string{`Environment = "A=1 `, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M", "APPTAINER_BIND=/cvmfs,/"} {
		if err != nil || !strings.Contains(reply.Hook, want) {
			t.Errorf("%+v, %v; want %s in it", reply, err, want)
		}
	}
	if strings.Contains(reply.Hook, "CUDA_VISIBLE_DEVICES=7") {
		t.Errorf("the job chooses its GPU: %s", reply.Hook)
	}
	if all := s.jobs.Running(); len(all) != 1 || all[0].Starter != st || !s.access.has(uuid(0), uint32(os.Getuid())) {
		t.Errorf("jobs = %+v", all)
	}
	reply, err = s.call(api.Request{Op: api.OpHook, Hook: said})
	if err != nil || !strings.HasPrefix(reply.Hook, "HookStatusCode = 374\n") || len(s.jobs.Running()) != 1 {
		t.Errorf("the second question: %+v, %v", reply, err)
	}
	if reply, err = s.call(api.Request{Op: api.OpHook}); err == nil || !strings.Contains(err.Error(), "no job ad") {
		t.Errorf("without an ad: %+v, %v", reply, err)
	}
}

func TestServeCallerOutsideAnySlot(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "bash", Cgroup: "/user.slice"})
	_, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(starter.Starter{Slot: "slot1_1"}, "alice", uuid(0), 4096)})
	if err == nil || !strings.Contains(err.Error(), "runs in no slot") {
		t.Errorf("error = %v", err)
	}
	if len(s.jobs.Running()) != 0 || s.access.calls != 0 {
		t.Error("it was booked")
	}
}

func TestServeSlotWithoutGPUs(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.in("slot9_1", true)
	reply, err := s.call(api.Request{Op: api.OpPrepare, Job: &api.Job{ID: "1.0", Owner: "alice"}})
	if err != nil || reply.Grant == nil || len(reply.Grant.Environment) != 0 {
		t.Errorf("%+v, %v", reply, err)
	}
	if len(s.jobs.Running()) != 0 || s.access.calls != 0 {
		t.Error("it was booked")
	}
}

// TestServeDaemonisedJob: only the cgroup tells its slot, so it gets what was
// admitted for that slot, and nothing before.
func TestServeDaemonisedJob(t *testing.T) {
	s := serveTestAgent(t, 1)
	st := s.in("slot1_1", true)
	s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "job", Cgroup: proctree.CgroupOf("slot1_1")})
	if _, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(st, "alice", uuid(0), 4096)}); err == nil {
		t.Error("admitted without a starter")
	}
	s.grant(st, uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.forgetQuestions(st) // as after a restart of the agent: the startd has confirmed it since
	s.startd.set([]condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(0))}, nil)
	s.startds.Ask(t.Context())
	if reply, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(st, "alice", uuid(0), 4096)}); err != nil || reply.Grant == nil {
		t.Errorf("%+v, %v", reply, err)
	}
	if reply, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(st, "alice", uuid(0), 8192)}); err != nil || reply.Refusal == nil {
		t.Errorf("with more than it holds: %+v, %v", reply, err)
	}
	if s.reason(0) != "" {
		t.Error("a job's lie closed the GPU for others")
	}
}

func TestServeWhoMayAsk(t *testing.T) {
	s := serveTestAgent(t, 1)
	if os.Getuid() != 0 {
		t.Log("not root: the refusals are tested, root's right is not")
	}
	s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "gpuslot", Cgroup: "/user.slice"})
	st, errStatus := s.call(api.Request{Op: api.OpStatus})
	mon, errMonitor := s.call(api.Request{Op: api.OpMonitor})
	if os.Getuid() == 0 {
		if errStatus != nil || st.Status == nil || len(st.Status.GPUs) != 1 || errMonitor != nil || len(mon.GPUs) != 1 || !mon.GPUs[0].Accept {
			t.Errorf("root: %+v %v, %+v %v", st, errStatus, mon, errMonitor)
		}
		return
	}
	if errStatus != nil || st.Status == nil || !st.Status.Partial || errMonitor == nil {
		t.Errorf("another account: %+v %v, monitor %v", st, errStatus, errMonitor)
	}
	s.proc.Add(proctree.Process{PID: 900, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
	s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 900, Comm: "monitor", UID: uint32(os.Getuid())})
	if mon, err := s.call(api.Request{Op: api.OpMonitor}); err != nil || len(mon.GPUs) != 1 {
		t.Errorf("the startd's monitor: %+v %v", mon, err)
	}
}

// TestServeManyAtOnce: many hooks of one account at once are all admitted, as
// far as there is room, and none beyond it.
func TestServeManyAtOnce(t *testing.T) {
	ta := newTestAgent(t, 1, "[sharing]\nshares = 8\n")
	const callers = 64
	for i := range callers {
		ta.proc.starter(2000+i, "slot1_"+string(rune('1'+i%9)))
	}
	var wg sync.WaitGroup
	replies := make([]api.Reply, callers)
	for i := range callers {
		st := starter.Starter{ID: process.ID{PID: 2000 + i, Started: proctree.StartOf(2000 + i)}, Slot: "slot1_1"}
		wg.Go(func() { replies[i] = ta.prepare(hookOf(st, 1000), jobOn(st, "alice", uuid(0), 4096)) })
	}
	wg.Wait()
	granted := 0
	for _, r := range replies {
		if r.Grant != nil {
			granted++
		}
	}
	// 32768 - 258 (driver) - 128 in steps of 512 = 32256 MiB: seven budgets of 4096.
	if granted != 7 {
		t.Errorf("%d were admitted, the pool holds 7", granted)
	}
	if why := ta.reason(0); !strings.Contains(why, "the startd wanted more") {
		t.Errorf("START is not told: %q", why)
	}
	ta.proc.End(2000 + indexGranted(replies))
	ta.sweeper.now()
	if why := ta.reason(0); why != "" {
		t.Errorf("after a job has ended: %q", why)
	}
}

func indexGranted(replies []api.Reply) int {
	for i, r := range replies {
		if r.Grant != nil {
			return i
		}
	}
	return -1
}

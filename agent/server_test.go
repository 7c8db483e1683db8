package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
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
	server *server
	cancel context.CancelFunc
	done   chan error
}

func serveTestAgent(t *testing.T, gpus int) *served {
	t.Helper()
	return serveWith(t, gpus, func(*server) {})
}

func serveWith(t *testing.T, gpus int, change func(*server)) *served {
	t.Helper()
	ta := newTestAgent(t, gpus, "")
	s := &served{testAgent: ta, socket: filepath.Join(ta.dir, "s.sock"), done: make(chan error, 1)}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s.server = newServer(ta.log, ta.proc.of(4294967), ta.Agent)
	s.server.hook = ta.proc.Program("/usr/libexec/gpuslot/gpuslot-condor")
	change(s.server)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(t.Context())
	go func() { s.done <- s.server.serve(ctx, l) }()
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

// raw sends bytes and returns the reply, if any.
func (s *served) raw(text string) (api.Reply, error) {
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		return api.Reply{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	_, errWrite := io.WriteString(c, text)
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return api.Reply{}, errors.Join(err, errWrite)
	}
	var r api.Reply
	return r, json.Unmarshal(line, &r)
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
	s.ask(t.Context())
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

func TestServeRubbish(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.in("slot1_1", true)
	for name, text := range map[string]string{
		"words":        "hello\n",
		"binary":       "\x00\xff\xfe\n",
		"empty line":   "\n",
		"array":        "[]\n",
		"no job":       `{"v":1,"op":"prepare"}` + "\n",
		"other op":     `{"v":1,"op":"reboot"}` + "\n",
		"other field":  `{"v":1,"op":"status","sudo":true}` + "\n",
		"new version":  `{"v":99,"op":"status"}` + "\n",
		"a megabyte":   strings.Repeat("x", 1<<20),
		"deep nesting": `{"v":1,"op":` + strings.Repeat("[", 100000) + "\n",
		"wrong types":  `{"v":1,"op":"prepare","job":{"assigned_gpus":"GPU-1"}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			r, err := s.raw(text)
			if err != nil || r.Error == "" {
				t.Errorf("reply %+v, %v, want an error in it", r, err)
			}
		})
	}
	if reply, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(starter.Starter{Slot: "slot1_1"}, "alice", uuid(0), 4096)}); err != nil || reply.Grant == nil {
		t.Errorf("after all that: %+v, %v", reply, err)
	}
}

// TestServeHalfRequest: a caller that hangs up gets no reply and leaves no trace.
func TestServeHalfRequest(t *testing.T) {
	s := serveTestAgent(t, 1)
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, `{"v":1,"op":"prep`); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(c); len(b) != 0 {
		t.Errorf("it got %q", b)
	}
	_ = c.Close()
}

// TestServeSilentConnections: more silent connections than one account may
// have do not keep its own next hook out.
func TestServeSilentConnections(t *testing.T) {
	// The test may run as root, who is exempt; here nobody is.
	// A silent one is never put out by its own deadline: the call's comes first.
	s := serveWith(t, 1, func(s *server) {
		s.crowd, s.readTimeout = newCrowd(50, func(uint32) bool { return false }), time.Hour
	})
	st := s.in("slot1_1", true)
	var silent []net.Conn
	defer func() {
		for _, c := range silent {
			_ = c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	reply, err := s.call(api.Request{Op: api.OpPrepare, Job: jobOn(st, "alice", uuid(0), 4096)})
	if err != nil || reply.Grant == nil {
		t.Fatalf("%+v, %v", reply, err)
	}
}

// TestCrowdPutsTheOldestOut: and nobody else.
func TestCrowdPutsTheOldestOut(t *testing.T) {
	c := newCrowd(2, func(uint32) bool { return false })
	var conns [4]net.Conn
	for i, uid := range []uint32{1000, 1001, 1000, 1000} {
		var other net.Conn
		conns[i], other = net.Pipe()
		defer other.Close()
		defer conns[i].Close()
		defer c.enter(uid, conns[i])()
	}
	for i, want := range []bool{true, false, false, false} {
		closed := errors.Is(conns[i].SetDeadline(time.Now()), io.ErrClosedPipe)
		if closed != want {
			t.Errorf("connection %d closed: %v, want %v", i, closed, want)
		}
	}
}

func TestCrowdForgets(t *testing.T) {
	c := newCrowd(2, func(uid uint32) bool { return uid == 0 })
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	var leave []func()
	for range 5 {
		leave = append(leave, c.enter(1000, a), c.enter(0, a))
	}
	if len(c.silent) != 1 || c.silent[1000].Len() != 2 {
		t.Errorf("silent = %v", c.silent)
	}
	for _, f := range leave {
		f()
		f() // twice is once
	}
	if len(c.silent) != 0 {
		t.Errorf("%d accounts are remembered", len(c.silent))
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
	if errStatus == nil || errMonitor == nil {
		t.Error("anybody may ask")
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
		st := starter.Starter{ID: process.ID{PID: 2000 + i, Started: uint64(2000+i) * 100}, Slot: "slot1_1"}
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
	ta.sweepNow()
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

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// node is one of which the test's own process asks: its place in /proc is made up, its
// credentials are not.
type node struct {
	*Server
	t        *testing.T
	proc     proctree.Tree
	socket   string
	listener *net.UnixListener
}

// newNode has a server, which answers prepare, here, monitor, usage, status and node.
func newNode(t *testing.T, change func(*Server)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "g") // short, for the address of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{t: t, proc: proctree.New(t), socket: filepath.Join(dir, "s.sock")}
	// Not the test's own account, so that a test that is not root's is nobody's operator.
	view := starter.Node{FS: process.FS{Root: n.proc.Root}, Own: 4294967}
	n.Server = New(Options{
		Callers: view, Own: view.Own, Owners: aliceOwners(t), Feedback: &Feedback{}, Log: slog.New(slog.DiscardHandler),
		Handlers: map[api.Op]Handler{
			api.OpPrepare: {From: Jobs, Answer: func(_ context.Context, q Question) api.Reply {
				return api.Reply{Grant: &api.Grant{EnforcedBy: q.Caller.Starter.Slot}}
			}},
			api.OpHere: {From: Anybody, Answer: func(_ context.Context, q Question) api.Reply {
				c, err := q.Identify()
				if err != nil {
					return api.Reply{Error: err.Error()}
				}
				return api.Reply{Done: c.Starter.Slot}
			}},
			api.OpMonitor: {From: Startds, Answer: done("monitor")},
			api.OpUsage:   {From: Startds, Answer: done("usage")},
			api.OpStatus:  {Answer: done("status")},
			api.OpNode: {From: Anybody, Answer: func(_ context.Context, q Question) api.Reply {
				return api.Reply{Done: fmt.Sprint(q.Operator, q.UID)}
			}},
		},
	})
	change(n.Server)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	n.listener = l
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- n.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return n
}

func unchanged(*Server) {}

func done(what string) func(context.Context, Question) api.Reply {
	return func(context.Context, Question) api.Reply { return api.Reply{Done: what} }
}

// in puts the test's process into a slot, as its job.
func (n *node) in(slot string) {
	n.proc.Starter(1000, slot)
	n.proc.Add(proctree.Process{
		PID: os.Getpid(), Parent: 1000, Comm: "job", UID: uint32(os.Getuid()), Cgroup: proctree.CgroupOf(slot),
	})
}

// out makes the test's process that of a login.
func (n *node) out() {
	n.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "bash", UID: uint32(os.Getuid()), Cgroup: "/user.slice"})
}

// below makes the test's process one that the startd started.
func (n *node) below() {
	n.proc.Add(proctree.Process{PID: 900, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
	n.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 900, Comm: "gpuslot-condor", UID: uint32(os.Getuid())})
}

func (n *node) call(op api.Op) (api.Reply, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Minute)
	defer cancel()
	req := api.Request{Op: op}
	if op == api.OpPrepare {
		req.Job = &api.Job{}
	}
	if op == api.OpNode {
		req.Verb = api.VerbStatus
	}
	return api.Call(ctx, n.socket, req)
}

// raw sends bytes and returns the reply, if any.
func (n *node) raw(text string) (api.Reply, error) {
	c, err := net.Dial("unix", n.socket)
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

// TestJobs: a job is identified before it is answered, and who cannot be is counted.
func TestJobs(t *testing.T) {
	var denied []error
	n := newNode(t, func(s *Server) {
		s.Notes.Denied = func(_ starter.Caller, err error) { denied = append(denied, err) }
	})
	n.in("slot1_1")
	if reply, err := n.call(api.OpPrepare); err != nil || reply.Grant == nil || reply.Grant.EnforcedBy != "slot1_1" || len(denied) > 0 {
		t.Errorf("%+v, %v, denied %v", reply, err, denied)
	}
	n.out()
	if _, err := n.call(api.OpPrepare); err == nil || !strings.Contains(err.Error(), "runs in no slot") || len(denied) != 1 {
		t.Errorf("outside any slot: %v, denied %v", err, denied)
	}
	if _, err := n.call(api.OpHere); err == nil || len(denied) != 1 {
		t.Errorf("anybody may ask where it is: %v, denied %v", err, denied)
	}
}

// TestWhoMayAsk: what operators may ask is refused to others, and what the startd may ask to
// all but operators and its own programs.
func TestWhoMayAsk(t *testing.T) {
	n := newNode(t, unchanged)
	n.out()
	root := os.Getuid() == 0
	for _, op := range []api.Op{api.OpStatus, api.OpMonitor} {
		if reply, err := n.call(op); (err == nil) != root || root && reply.Done != string(op) {
			t.Errorf("%s: %+v, %v", op, reply, err)
		}
	}
	if reply, err := n.call(api.OpNode); err != nil || reply.Done != fmt.Sprint(root, os.Getuid()) {
		t.Errorf("%+v, %v", reply, err)
	}
	n.below()
	if reply, err := n.call(api.OpMonitor); err != nil || reply.Done != "monitor" {
		t.Errorf("the startd's monitor: %+v %v", reply, err)
	}
	// Another account than root's, by the credentials of its connection.
	stranger := starter.Peer{PID: os.Getpid(), UID: 4711}
	n.out()
	for _, op := range []api.Op{api.OpStatus, api.OpMonitor, api.OpUsage} {
		if r := n.reply(t.Context(), nil, stranger, api.Request{Op: op}); !strings.Contains(r.Error, "only root") {
			t.Errorf("%s: a stranger gets %+v", op, r)
		}
	}
	if r := n.reply(t.Context(), nil, stranger, api.Request{Op: api.OpNode}); r.Done != "false 4711" {
		t.Errorf("who asked: %+v", r)
	}
}

// TestUnable: every request gets the same answer.
func TestUnable(t *testing.T) {
	n := newNode(t, func(s *Server) { s.Unable = "all GPUs are closed" })
	for _, op := range []api.Op{api.OpPrepare, api.OpStatus, api.OpNode} {
		if _, err := n.call(op); err == nil || !strings.Contains(err.Error(), "all GPUs are closed") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestServeRubbish(t *testing.T) {
	n := newNode(t, unchanged)
	n.in("slot1_1")
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
			r, err := n.raw(text)
			if err != nil || r.Error == "" {
				t.Errorf("reply %+v, %v, want an error in it", r, err)
			}
		})
	}
	if reply, err := n.call(api.OpPrepare); err != nil || reply.Grant == nil {
		t.Errorf("after all that: %+v, %v", reply, err)
	}
}

// TestServeHalfRequest: a caller that hangs up gets no reply and leaves no trace.
func TestServeHalfRequest(t *testing.T) {
	n := newNode(t, unchanged)
	c, err := net.Dial("unix", n.socket)
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
	n := newNode(t, func(s *Server) {
		s.silent, s.readTimeout = newSilent(50, 50, func(uint32) bool { return false }), time.Hour
	})
	n.in("slot1_1")
	var silent []net.Conn
	defer func() {
		for _, c := range silent {
			_ = c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("unix", n.socket)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	reply, err := n.call(api.OpPrepare)
	if err != nil || reply.Grant == nil {
		t.Fatalf("%+v, %v", reply, err)
	}
}

// TestOldestIsPutOut: and nobody else.
func TestOldestIsPutOut(t *testing.T) {
	c := newSilent(2, 100, func(uint32) bool { return false })
	var conns [4]net.Conn
	for i, uid := range []uint32{1000, 1001, 1000, 1000} {
		var other net.Conn
		conns[i], other = net.Pipe()
		defer other.Close()
		defer conns[i].Close()
		defer c.enter(uid, uid, func() { _ = conns[i].Close() })()
	}
	for i, want := range []bool{true, false, false, false} {
		closed := errors.Is(conns[i].SetDeadline(time.Now()), io.ErrClosedPipe)
		if closed != want {
			t.Errorf("connection %d closed: %v, want %v", i, closed, want)
		}
	}
}

func TestSilentForgets(t *testing.T) {
	c := newSilent(2, 100, func(uid uint32) bool { return uid == 0 })
	var leave []func()
	for range 5 {
		leave = append(leave, c.enter(1000, 1000, func() {}), c.enter(0, 0, func() {}))
	}
	if len(c.accounts) != 1 || c.accounts.len(1000) != 2 || c.sum != 2 {
		t.Errorf("silent = %v, %d in all", c.accounts, c.sum)
	}
	for _, f := range leave {
		f()
		f() // twice is once
	}
	if len(c.accounts) != 0 || len(c.owners) != 0 || c.sum != 0 {
		t.Errorf("%d accounts are remembered, %d owners, %d in all", len(c.accounts), len(c.owners), c.sum)
	}
}

// TestPanic: a conversation that panics ends alone.
func TestPanic(t *testing.T) {
	panicked := make(chan api.Op, 2)
	n := newNode(t, func(s *Server) {
		s.Notes.Panicked = func(op api.Op) { panicked <- op }
		s.Handlers[api.OpNode] = Handler{From: Anybody, Answer: func(context.Context, Question) api.Reply { panic("a defect") }}
	})
	n.out()
	if reply, err := n.raw(`{"v":1,"op":"node","verb":"status"}` + "\n"); err == nil {
		t.Errorf("%+v", reply)
	}
	if reply, err := n.raw(`{"v":1,"op":"reboot"}` + "\n"); err != nil || reply.Error == "" {
		t.Errorf("afterwards: %+v, %v", reply, err)
	}
	if op := <-panicked; op != api.OpNode || len(panicked) > 0 {
		t.Errorf("counted: %s, and %d others", op, len(panicked))
	}
}

// ask asks the server from the test's process; stays says whether it reads the reply.
func (n *node) ask(req api.Request, stays bool) {
	n.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(n.t.TempDir(), "s.sock"), Net: "unix"})
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	caller, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	conn, err := l.AcceptUnix()
	if err != nil {
		n.t.Fatal(err)
	}
	req.Version = api.Version
	line, err := json.Marshal(req)
	if err == nil {
		_, err = caller.Write(append(line, 10))
	}
	if err != nil {
		n.t.Fatal(err)
	}
	if stays {
		go func() { _, _ = io.Copy(io.Discard, caller) }()
	} else {
		_ = caller.Close()
	}
	n.converse(context.Background(), conn, starter.Peer{PID: os.Getpid(), UID: uint32(os.Getuid())}, func() {})
}

// TestHandOver: whether the startd's programs took their replies is noted, and of nobody else.
func TestHandOver(t *testing.T) {
	var log strings.Builder // each question below is answered by this goroutine
	n := newNode(t, func(s *Server) {
		s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	n.out()
	n.ask(api.Request{Op: api.OpMonitor}, true)
	if _, _, asked := n.Feedback.Worst(); asked {
		t.Fatal("who asks by hand feeds no startd")
	}
	n.below()
	n.ask(api.Request{Op: api.OpHere}, true)
	if _, _, asked := n.Feedback.Worst(); asked {
		t.Fatal("another question is no feedback")
	}
	for _, op := range []api.Op{api.OpMonitor, api.OpUsage} {
		n.ask(api.Request{Op: op}, true)
		ok, took, asked := n.Feedback.Worst()
		if !asked || !ok || took.IsZero() || n.Feedback.TookAt(op).IsZero() {
			t.Fatalf("%s: it took the reply: %t, %s", op, ok, took)
		}
		if log.Len() > 0 {
			t.Errorf("%s: it took the reply, but: %s", op, &log)
		}
		n.ask(api.Request{Op: op}, false)
		if ok, at, _ := n.Feedback.Worst(); ok || !at.Equal(took) {
			t.Fatalf("%s: it left without the reply: %t, %s, before %s", op, ok, at, took)
		}
		if !strings.Contains(log.String(), "left without its reply") {
			t.Errorf("%s: it left without the reply: %s", op, &log)
		}
		log.Reset()
		n.ask(api.Request{Op: op}, true)
	}
}

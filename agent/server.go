package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Deadlines of one connection.
const (
	readTimeout  = 2 * time.Second
	writeTimeout = 2 * time.Second
)

// answers are what the server asks the agent for.
type answers interface {
	// prepare admits or refuses the job of a caller.
	prepare(ctx context.Context, c starter.Caller, job *api.Job) api.Reply
	// denied counts a caller of prepare that could not be identified.
	denied(c starter.Caller, err error)
	// panicked counts a conversation that was broken off.
	panicked(op api.Op)
	acceptances() []api.Acceptance
	// noStart is why no job's supervisor gets the word to start it; empty if they do.
	noStart() string
	// wholeGPUs are the elastic ones that take whole jobs; nil if there are none.
	wholeGPUs() *api.WholeGPUs
	// jobHolds are the jobs that HTCondor is to hold.
	jobHolds() []api.Hold
	// jobUses is what the running jobs used.
	jobUses() []api.Use
	// handedOver notes whether a program of the startd's took its reply.
	handedOver(op api.Op, ok bool)
	// start puts the limits of the caller's cgroup in force.
	start(ctx context.Context, c starter.Caller) api.Reply
	// end lets the MPS clients of the caller's leaf leave.
	end(ctx context.Context, c starter.Caller) (*api.Ended, error)
	// here is what the caller's job holds.
	here(c starter.Caller) *api.Here
	status() *api.Status
	// restart starts a GPU's control daemon anew.
	restart(ctx context.Context, gpu string, force bool) (string, error)
	// closeGPU and openGPU hold GPUs for an owner, and no more.
	closeGPU(req api.Request) (api.Closing, error)
	openGPU(req api.Request) (api.Closing, error)
	// askNode takes the node out of service and back.
	askNode(req api.Request) (api.NodeStatus, error)
	// verify runs a CUDA client on one GPU, or on all that are idle.
	verify(ctx context.Context, gpu string) ([]api.Verification, error)
}

// server answers the agent's socket: one request and one reply per connection.
type server struct {
	log     *slog.Logger
	proc    starter.Node
	answers answers
	crowd   *crowd
	// readTimeout is how long a connection may be silent.
	readTimeout time.Duration
	// hook is the program that HTCondor runs as the hook.
	hook string
	// unable is the reply to every request; empty if requests are answered.
	unable string
}

func newServer(log *slog.Logger, proc starter.Node, a answers) *server {
	privileged := func(uid uint32) bool { return uid == 0 || uid == proc.Own }
	return &server{log: log, proc: proc, answers: a, readTimeout: readTimeout, crowd: newCrowd(maxSilent, privileged)}
}

// serve answers until the context ends, then lets the conversations under way
// come to their end: each has a deadline.
func (s *server) serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case err == nil:
			s.welcome(ctx, conn, &wg)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen on %s: %w", l.Addr(), err)
		default:
			// Out of file descriptors, most likely: those in use end within seconds.
			s.log.Error("cannot accept a connection", "err", err)
			pause(ctx, 250*time.Millisecond)
		}
	}
}

// pause waits, but not longer than the context.
func pause(ctx context.Context, d time.Duration) {
	_ = backoff.Wait(ctx, d) // the callers look at the context themselves
}

// welcome lets a caller in. The crowd is entered here and not by the
// conversation, because goroutines do not start in the order of arrival: a
// silent caller that came earlier could put out one that has just begun.
func (s *server) welcome(ctx context.Context, conn *net.UnixConn, wg *sync.WaitGroup) {
	p, err := starter.PeerOf(conn)
	if err != nil {
		s.log.Debug("a caller is gone", "err", err)
		hangUp(conn)
		return
	}
	leave := s.crowd.enter(p.UID, conn)
	wg.Go(func() { s.converse(ctx, conn, p, leave) })
}

// converse reads one request, answers it and hangs up. Leave ends the caller's
// part in the crowd; it may be called twice.
func (s *server) converse(ctx context.Context, conn *net.UnixConn, p starter.Peer, leave func()) {
	defer hangUp(conn)
	defer leave()
	_ = conn.SetReadDeadline(time.Now().Add(s.readTimeout))
	var (
		req api.Request
		err error
	)
	defer func() { // of one caller's conversation the others shall not know
		if why := recover(); why != nil {
			s.answers.panicked(req.Op)
			s.log.Error("a conversation was broken off: this is a defect of gpuslotd, please report it",
				"request", req.Op, "uid", p.UID, "err", fmt.Sprint(why), "stack", string(debug.Stack()))
		}
	}()
	req, err = api.ReadRequest(conn)
	leave()
	if errors.Is(err, api.ErrSilent) {
		return
	}
	var reply api.Reply
	feeds := false
	switch {
	case err != nil:
		reply.Error = err.Error()
	case s.unable != "":
		reply.Error = s.unable
	default:
		feeds = s.feeds(p, req.Op) // before the caller has ended
		reply = s.reply(ctx, conn, p, req)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err = api.WriteReply(conn, reply); err != nil {
		s.log.Debug("a caller left without its reply", "err", err)
	}
	if feeds {
		s.answers.handedOver(req.Op, err == nil)
	}
}

// feeds: the startd's own program asks for what the startd shall know. Root who
// asks by hand tells nothing of whether it does.
func (s *server) feeds(p starter.Peer, op api.Op) bool {
	return (op == api.OpMonitor || op == api.OpUsage) && s.proc.PeerBelowStartd(p)
}

// hangUp ends a conversation; the reply is written or given up by then.
func hangUp(conn net.Conn) { _ = conn.Close() }

// reply does what is asked if the caller may ask it.
func (s *server) reply(ctx context.Context, conn *net.UnixConn, p starter.Peer, req api.Request) api.Reply {
	switch req.Op {
	case api.OpPrepare, api.OpStart, api.OpEnd:
		c, err := s.proc.IdentifyPeer(conn, p)
		if err != nil {
			s.answers.denied(c, err)
			s.log.Debug("refused a caller", "uid", p.UID, "pid", p.PID, "err", err)
			return api.Reply{Error: err.Error()}
		}
		switch req.Op {
		case api.OpStart:
			return s.answers.start(ctx, c)
		case api.OpEnd:
			return s.end(ctx, c)
		}
		c.Hook = s.proc.IsHook(c, s.hook)
		return s.answers.prepare(ctx, c, req.Job)
	case api.OpHere:
		return s.here(conn, p)
	case api.OpMonitor, api.OpUsage:
		if !s.mayAsk(p) && !s.proc.PeerBelowStartd(p) {
			return api.Reply{Error: "only root, the agent's account and the startd's own programs may ask which GPUs accept jobs: run it as root"}
		}
		if req.Op == api.OpUsage {
			return api.Reply{Uses: s.answers.jobUses()}
		}
		return api.Reply{GPUs: s.answers.acceptances(), Whole: s.answers.wholeGPUs(), Holds: s.answers.jobHolds(),
			NoStart: s.answers.noStart()}
	}
	if req.Op == api.OpNode {
		return s.node(p, req)
	}
	if !s.mayAsk(p) {
		return api.Reply{Error: fmt.Sprintf("only root and the agent's account may ask for %s: run gpuslot as root", req.Op)}
	}
	if req.Op == api.OpVerify {
		return s.verify(ctx, req.GPU)
	}
	if req.Op == api.OpRestart {
		text, err := s.answers.restart(ctx, req.GPU, req.Force)
		if err != nil {
			return api.Reply{Error: err.Error()}
		}
		return api.Reply{Done: text}
	}
	if req.Op == api.OpClose {
		return closing(s.answers.closeGPU(req))
	}
	if req.Op == api.OpOpen {
		return closing(s.answers.openGPU(req))
	}
	// OpStatus: ReadRequest lets no other through.
	return api.Reply{Status: s.answers.status()}
}

// end answers a job's supervisor.
func (s *server) end(ctx context.Context, c starter.Caller) api.Reply {
	ended, err := s.answers.end(ctx, c)
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	return api.Reply{Ended: ended}
}

// node tells everybody how the node is, and root the jobs and processes, too.
func (s *server) node(p starter.Peer, req api.Request) api.Reply {
	if !s.mayAsk(p) && req.Verb != api.VerbStatus {
		return api.Reply{Error: fmt.Sprintf("only root and the agent's account may %s the node: run gpuslot as root", req.Verb)}
	}
	n, err := s.answers.askNode(req)
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	if !s.mayAsk(p) {
		n.Jobs, n.Holders, n.Waits = nil, nil, ""
	}
	return api.Reply{Node: &n}
}

// closing tells what was done even if not all could be.
func closing(c api.Closing, err error) api.Reply {
	if err != nil {
		return api.Reply{Error: strings.Join(append(c.Text, err.Error()), "\n")}
	}
	return api.Reply{Closing: &c}
}

func (s *server) verify(ctx context.Context, name string) api.Reply {
	found, err := s.answers.verify(ctx, name)
	if err != nil {
		return api.Reply{Error: err.Error()}
	}
	return api.Reply{Verified: found}
}

func (s *server) mayAsk(p starter.Peer) bool { return p.UID == 0 || p.UID == s.proc.Own }

// Package server answers the agent's unix socket: one request and one reply per connection.
// It reads requests, finds out who asks by the kernel's word, and keeps the connections of one
// account from those of others. What is answered comes from a table of handlers, one for each
// kind of request.
//
// Start at Server. Feedback notes whether the startd's own programs took their replies.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Deadlines of one connection.
const (
	readTimeout  = 2 * time.Second
	writeTimeout = 10 * time.Second
)

// acceptAgain is when the next connection is tried after one could not be accepted: without
// file descriptors, most likely, and those in use end within seconds.
const acceptAgain = 250 * time.Millisecond

// From is who may ask a kind of request.
type From int

const (
	// Operators are root and the agent's own account.
	Operators From = iota
	// Startds are the startd's own programs, and operators.
	Startds
	// Jobs are the processes of jobs, and the hooks of their starters.
	Jobs
	// Anybody is every process on the node.
	Anybody
)

// Handler answers one kind of request.
type Handler struct {
	From   From
	Answer func(ctx context.Context, q Question) api.Reply
}

// Question is a request, with who asks.
type Question struct {
	api.Request
	// UID is the account that asks. Operator: it is root or the agent's own account.
	UID      uint32
	Operator bool
	// Caller is the job that asks, of a Handler for Jobs.
	Caller starter.Caller
	// Identify finds the job that asks, for the other handlers.
	Identify func() (starter.Caller, error)
}

// Callers tells who asks; starter.Node is the real one.
type Callers interface {
	// IdentifyPeer finds the slot of the process behind a connection.
	IdentifyPeer(conn *net.UnixConn, p starter.Peer) (starter.Caller, error)
	// PeerBelowStartd says whether the startd itself started it.
	PeerBelowStartd(p starter.Peer) bool
}

// Notes count what went wrong; each may be nil.
type Notes struct {
	// Denied is called with a caller of a Handler for Jobs that could not be identified.
	Denied func(c starter.Caller, err error)
	// Refused is called with a request for which there was no room beside others.
	Refused func()
	// Panicked is called when a conversation was broken off.
	Panicked func(op api.Op)
}

// Options are what a Server works with.
type Options struct {
	Callers Callers
	// Own is the agent's account.
	Own uint32
	// Owners say which accounts are one owner; those of /etc/subuid where nil.
	Owners   *room.Owners
	Handlers map[api.Op]Handler
	// Unable is the reply to every request; empty if requests are answered.
	Unable string
	// Hook says whether a caller of OpPrepare or OpHook is HTCondor's hook; nil where there is none.
	Hook func(c starter.Caller) bool
	// Feedback may be nil.
	Feedback *Feedback
	Notes    Notes
	Log      *slog.Logger
}

// Server answers one socket.
type Server struct {
	Options
	silent *silent
	// long are the requests that are longer than shortRequest.
	long *underWay
	// underWay are the requests that are being answered.
	underWay *underWay
	// beyond are those of HTCondor's programs above these, by owner, and those of which that is being
	// found out.
	beyond *underWay
	// refusing are the replies to requests for which there was no room.
	refusing *underWay
	// replies are the bytes of replies that are being written.
	replies *underWay
	// endings close all connections.
	endings endings
	// readTimeout is how long a connection may be silent, writeTimeout how long its reply may take.
	readTimeout, writeTimeout time.Duration
	// peer reads who is at the other end of a connection.
	peer func(*net.UnixConn) (starter.Peer, error)
}

// New returns a Server.
func New(o Options) *Server {
	o.Owners = cmp.Or(o.Owners, room.NewOwners(""))
	s := &Server{Options: o, readTimeout: readTimeout, writeTimeout: writeTimeout, peer: starter.PeerOf}
	s.long = newUnderWay(mostLong, mostLongInAll, s.isOperator)
	s.silent = newSilent(mostSilent, mostSilentInAll, s.isOperator)
	s.underWay = newUnderWay(mostUnderWay, mostUnderWayInAll, s.isOperator)
	// Operators have room in underWay; here an owner only has the name of its first account.
	s.beyond = newUnderWay(mostBeyond, mostBeyondInAll, func(uint32) bool { return false })
	s.refusing = newUnderWay(mostBeyond, mostBeyondInAll, s.isOperator)
	s.replies = newUnderWay(mostReplies, mostRepliesInAll, s.isOperator)
	return s
}

// Serve answers until the context ends, then lets the conversations under way
// come to their end: each has a deadline.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if err := refuseDescriptors(l); err != nil {
		s.Log.Warn("callers may send open files, which gpuslotd has to close", "err", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		s.awaitEndings(ctx)
		conn, err := l.AcceptUnix()
		switch {
		case err == nil:
			s.accept(ctx, conn, &wg)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen on %s: %w", l.Addr(), err)
		default:
			s.Log.Error("cannot accept a connection", "err", err)
			_ = backoff.Wait(ctx, acceptAgain) // the context is looked at above
		}
	}
}

// awaitEndings waits until connections that end leave room for others.
func (s *Server) awaitEndings(ctx context.Context) {
	if !s.endings.full() {
		return
	}
	s.Log.Error("no connection is accepted: the ends of too many are kept waiting by files that callers sent")
	for s.endings.full() && backoff.Wait(ctx, acceptAgain) == nil { // Wait ends the loop with the context
	}
	s.Log.Info("connections are accepted again")
}

// accept begins a conversation. The connection counts as silent from here on, and not from
// the conversation on, because goroutines do not start in the order of arrival: a
// silent caller that came earlier could put out one that has just begun.
func (s *Server) accept(ctx context.Context, conn *net.UnixConn, wg *sync.WaitGroup) {
	p, err := s.peer(conn)
	if err != nil {
		s.Log.Debug("a caller is gone", "err", err)
		s.endings.end(conn)
		return
	}
	owner := s.Owners.Of(p.UID)
	_ = conn.SetWriteBuffer(mostUnread)
	heard := s.silent.enter(p.UID, cmp.Or(room.Block(owner), owner), func() { shut(conn) })
	wg.Go(func() { s.converse(ctx, conn, p, heard) })
}

// converse reads one request, answers it and hangs up. Heard ends the time in which the
// connection counts as silent; it may be called twice.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn, p starter.Peer, heard func()) {
	defer s.endings.end(conn)
	defer heard()
	_ = conn.SetReadDeadline(time.Now().Add(s.readTimeout))
	var (
		req api.Request
		err error
	)
	defer func() { // of one caller's conversation the others shall not know
		if why := recover(); why != nil {
			if s.Notes.Panicked != nil {
				s.Notes.Panicked(req.Op)
			}
			s.Log.Error("a conversation was broken off: this is a defect of gpuslotd, please report it",
				"request", req.Op, "uid", p.UID, "err", fmt.Sprint(why), "stack", string(debug.Stack()))
		}
	}()
	from, err := readerOf(conn)
	if err != nil {
		return // it has ended
	}
	request := s.longReader(from, p.UID)
	defer request.done()
	req, err = api.ReadRequest(request)
	heard()
	switch {
	case errors.Is(err, errLong):
		err = errLong
	case errors.Is(err, api.ErrSilent):
		return
	}
	end, free := s.underWay.begin(p.UID, s.Owners.Of(p.UID))
	if !free {
		end, free = s.beginBeyond(conn, p, req.Op)
	}
	if !free {
		s.refused()
		var known bool
		if end, known = s.refusing.begin(p.UID, s.Owners.Of(p.UID)); !known {
			return
		}
	}
	defer func() { end() }() // once the reply is read
	var reply api.Reply
	feeds := false
	switch {
	case !free:
		reply.Error = fmt.Sprintf("gpuslotd answers too many requests of account %d, or of all, at this time: "+
			"ask again", p.UID)
	case err != nil:
		if errors.Is(err, errLong) {
			s.refused()
		}
		reply.Error = err.Error()
	case s.Unable != "":
		reply.Error = s.Unable
	default:
		// Asked before the caller has ended. Root who asks by hand feeds no startd.
		feeds = s.Feedback != nil && s.Handlers[req.Op].From == Startds && s.Callers.PeerBelowStartd(p)
		reply = s.reply(ctx, conn, p, req)
	}
	err = s.write(conn, p, req.Op, reply, request.done)
	req, reply = api.Request{Op: req.Op}, api.Reply{}
	if feeds {
		s.Feedback.Note(req.Op, err == nil, time.Now())
	}
	awaitRead(ctx, conn)
}

// write writes a reply, and forgets the request when the reply is counted: so few long ones are made at a time.
func (s *Server) write(conn *net.UnixConn, p starter.Peer, op api.Op, reply api.Reply, forget func()) error {
	line, written := s.lineOf(conn, p, op, reply)
	defer written()
	forget()
	_ = conn.SetWriteDeadline(time.Now().Add(s.writeTimeout))
	_, err := conn.Write(line)
	if err != nil {
		s.Log.Debug("a caller left without its reply", "err", err)
	}
	return err
}

// lineOf is the text of a reply, whose bytes count until written is called. Where there is no room for them, it says
// only that, if not one of HTCondor's programs asks.
func (s *Server) lineOf(conn *net.UnixConn, p starter.Peer, op api.Op, reply api.Reply) (line []byte, written func()) {
	line, err := api.ReplyLine(reply)
	written, ok := s.replies.beginMany(p.UID, s.Owners.Of(p.UID), len(line)-shortReply)
	if !ok {
		written, ok = s.beginBeyond(conn, p, op)
	}
	switch {
	case err != nil:
		reply = api.Reply{Error: err.Error()}
	case !ok:
		s.refused()
		reply = api.Reply{Error: "too many long replies of gpuslotd to this account, or to all, are not read yet: ask again"}
	default:
		return line, written
	}
	line, _ = api.ReplyLine(reply) // a text alone is always JSON
	return line, written
}

// beginBeyond counts a request above the room of its account until end is called, if one of HTCondor's
// programs asks. It counts from before that is known: to find it out can take long, and meanwhile the
// connection and what it sent are kept.
func (s *Server) beginBeyond(conn *net.UnixConn, p starter.Peer, op api.Op) (end func(), ok bool) {
	owner := s.Owners.Of(p.UID)
	end, ok = s.beyond.begin(owner, owner)
	of := false
	defer func() {
		if !of { // or it is not known, after a panic
			end()
			end = func() {}
		}
	}()
	of = ok && s.ofHTCondor(conn, p, op)
	return end, of
}

// ofHTCondor: a hook or the startd's own program asks, which is answered however much its
// account's other processes ask.
func (s *Server) ofHTCondor(conn *net.UnixConn, p starter.Peer, op api.Op) bool {
	switch {
	case s.Callers == nil:
		return false
	case s.Handlers[op].From == Startds:
		return s.Callers.PeerBelowStartd(p)
	case op != api.OpPrepare && op != api.OpHook || s.Hook == nil:
		return false
	}
	c, err := s.Callers.IdentifyPeer(conn, p)
	return err == nil && s.Hook(c)
}

// reply does what is asked if the caller may ask it.
func (s *Server) reply(ctx context.Context, conn *net.UnixConn, p starter.Peer, req api.Request) api.Reply {
	h, ok := s.Handlers[req.Op]
	if !ok {
		return api.Reply{Error: fmt.Sprintf("there is no request %s", req.Op)}
	}
	q := Question{
		Request: req, UID: p.UID, Operator: s.isOperator(p.UID),
		Identify: func() (starter.Caller, error) {
			c, err := s.Callers.IdentifyPeer(conn, p)
			if errors.Is(err, room.ErrBusy) {
				s.refused()
			}
			return c, err
		},
	}
	switch {
	case h.From == Operators && !q.Operator:
		return api.Reply{Error: fmt.Sprintf("only root and the agent's account may ask for %s: run gpuslot as "+
			"root", req.Op)}
	case h.From == Startds && !q.Operator && !s.Callers.PeerBelowStartd(p):
		return api.Reply{Error: "only root, the agent's account and the startd's own programs " +
			"may ask which GPUs accept jobs: run it as root"}
	case h.From == Jobs:
		c, err := q.Identify()
		if err != nil {
			if s.Notes.Denied != nil && !errors.Is(err, room.ErrBusy) {
				s.Notes.Denied(c, err)
			}
			s.Log.Debug("refused a caller", "uid", p.UID, "pid", p.PID, "err", err)
			return api.Reply{Error: err.Error()}
		}
		q.Caller = c
	}
	return h.Answer(ctx, q)
}

func (s *Server) refused() {
	if s.Notes.Refused != nil {
		s.Notes.Refused()
	}
}

func (s *Server) isOperator(uid uint32) bool { return uid == 0 || uid == s.Own }

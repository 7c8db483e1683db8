package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// callTimeout ends a Call whose context has no deadline.
const callTimeout = 5 * time.Second

// Call sends one request to the agent and returns its reply. Request.Version
// is set here. A refused job is a reply with Refusal and no error; a refused
// request (Reply.Error), a missing, silent or foreign agent are errors, each a
// sentence that ends with what to do.
func Call(ctx context.Context, socket string, req Request) (Reply, error) {
	start := time.Now()
	ctx, cancel := bounded(ctx)
	defer cancel()
	reply, err := converse(ctx, socket, req)
	for range retries {
		if !hungUp(err) || ctx.Err() != nil {
			break
		}
		reply, err = converse(ctx, socket, req)
	}
	if err == nil {
		return reply, reply.check()
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err() // seen by converse as a deadline in the past
	}
	return Reply{}, explain(err, socket, time.Since(start))
}

// retries of a conversation in which the agent died: systemd holds the socket,
// so the next one waits for its successor. Every request may be said twice.
const retries = 2

// hungUp: the connection ended before a reply.
func hungUp(err error) bool {
	return errors.Is(err, ErrSilent) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// bounded has a deadline in any case: its own, or that of callTimeout.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// converse is the whole conversation on one connection.
func converse(ctx context.Context, socket string, req Request) (Reply, error) {
	c, err := dial(ctx, socket)
	if err != nil {
		return Reply{}, err
	}
	defer c.Close()
	return exchange(ctx, c, req)
}

// exchange sends the request and reads the reply.
func exchange(ctx context.Context, c net.Conn, req Request) (Reply, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return Reply{}, err
	}
	// The connection knows deadlines only; cancelling becomes one in the past.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req.Version = Version
	sent := writeLine(c, req)
	// The server may have answered and hung up without reading all of a
	// request it refuses: its word explains more than the broken pipe.
	line, err := readLine(c, maxReply)
	if errors.Is(err, ErrTooLong) {
		return Reply{}, fmt.Errorf("%w: it is longer than %d bytes", errForeign, maxReply)
	}
	if err != nil {
		return Reply{}, errors.Join(err, sent)
	}
	reply, err := readReply(req.Op, line)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errForeign, err)
	}
	return reply, nil
}

// errForeign: something else than gpuslotd answered.
var errForeign = errors.New("the answer is not gpuslotd's")

// dial waits for room in the listener's queue: Linux refuses a non-blocking
// connect to a full one with EAGAIN (unix(7)), which is what happens when many
// jobs start while systemd restarts the agent.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	pause := backoff.Doubling{First: time.Millisecond, Longest: 50 * time.Millisecond}
	for try := 1; ; try++ {
		c, err := d.DialContext(ctx, "unix", socket)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		if err := backoff.Wait(ctx, pause.After(try)); err != nil {
			return nil, err
		}
	}
}

// check turns a reply that refuses the request into an error.
func (r Reply) check() error {
	switch {
	case r.Error != "":
		return fmt.Errorf("gpuslotd refuses the request: %s", r.Error)
	case r.Version != Version:
		return fmt.Errorf("gpuslotd speaks protocol version %d, this program %d; "+
			"install the same version of both and restart gpuslotd", r.Version, Version)
	}
	return nil
}

// unreached is an error whose text says all that its cause would.
type unreached struct {
	text  string
	cause error
}

func (u unreached) Error() string { return u.text }

func (u unreached) Unwrap() error { return u.cause }

// explain says what went wrong and what to do about it.
func explain(err error, socket string, waited time.Duration) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return unreached{fmt.Sprintf("gpuslotd does not listen on %s; start it: systemctl enable --now gpuslotd",
			socket), err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreached{fmt.Sprintf("no process listens on %s any more; start it: systemctl restart gpuslotd.socket",
			socket), err}
	case errors.Is(err, os.ErrPermission):
		return unreached{fmt.Sprintf("no permission to ask gpuslotd on %s; check the socket's mode (0666) and its directory",
			socket), err}
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("the call to gpuslotd was cancelled: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("gpuslotd did not answer within %s; look at: systemctl status gpuslotd (%w)",
			waited.Round(time.Millisecond), err)
	case hungUp(err):
		return fmt.Errorf("gpuslotd hung up without an answer; look at: journalctl -u gpuslotd (%w)", err)
	}
	return fmt.Errorf("talk to gpuslotd on %s: %w; look at: systemctl status gpuslotd", socket, err)
}

// AskStatus asks the agent for its whole state.
func AskStatus(ctx context.Context, socket string) (Status, error) {
	reply, err := Call(ctx, socket, Request{Op: OpStatus})
	if err != nil {
		return Status{}, err
	}
	if reply.Status == nil {
		return Status{}, errors.New("the agent answered without a status; gpuslot and gpuslotd may be of different versions")
	}
	return *reply.Status, nil
}

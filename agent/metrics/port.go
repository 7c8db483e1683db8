package metrics

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Sockets keeps listening TCP sockets while the agent is restarted; systemd.Sockets is one.
type Sockets interface {
	// Keep has the socket of an address kept.
	Keep(address string, l net.Listener) error
	// Kept hands out the socket that was kept for an address, once, and closes all
	// others; nil if there is none. An error does not say that it cannot be used.
	Kept(address string) (net.Listener, error)
}

// Port serves metrics as soon as it can: GPUs are not taken from jobs because another
// process has the port.
type Port struct {
	Metrics *Metrics
	Web     Web
	// Sockets keeps the port over a restart; nil without systemd.
	Sockets Sockets
	Log     *slog.Logger
	// down is why metrics are not served.
	down atomic.Pointer[string]
}

// Down is why metrics are not served; empty if they are, or are not configured.
func (p *Port) Down() string {
	if why := p.down.Load(); why != nil {
		return *why
	}
	return ""
}

// portPause is between attempts at a port that another process has: a job may take it
// while gpuslotd restarts.
var portPause = backoff.Doubling{First: time.Second, Longest: 30 * time.Second}

// Serve serves metrics until the context ends: on the service manager's socket if that is
// not nil, else on an address. It returns at once if both are empty.
func (p *Port) Serve(ctx context.Context, given net.Listener, address string) {
	if p.Sockets == nil {
		p.Sockets = noSockets{}
	}
	if given != nil || address == "" {
		_, err := p.Sockets.Kept("") // one from before is not needed
		p.warn(err)
	}
	for try := 1; ctx.Err() == nil && (given != nil || address != ""); try++ {
		l, err := given, error(nil)
		if l == nil {
			l, err = p.bind(ctx, address)
		}
		if err == nil {
			if p.down.Swap(nil) != nil {
				p.Log.Info("metrics are served again")
			}
			err = p.Metrics.Serve(ctx, l, p.Web, p.Log)
			_ = l.Close() // a second Close does no harm
			given = nil
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		why := err.Error()
		if was := p.down.Swap(&why); was == nil || *was != why {
			p.Log.Warn("metrics are not served", "err", err)
		}
		if address != "" {
			_ = backoff.Wait(ctx, portPause.After(try)) // the loop looks at the context
		}
	}
}

// bind takes the socket that was kept over a restart, or makes one and has it kept.
func (p *Port) bind(ctx context.Context, address string) (net.Listener, error) {
	l, err := p.Sockets.Kept(address)
	p.warn(err)
	if l != nil {
		return l, nil
	}
	var lc net.ListenConfig
	if l, err = lc.Listen(ctx, "tcp", address); err != nil {
		return nil, err
	}
	p.warn(p.Sockets.Keep(address, l))
	return l, nil
}

func (p *Port) warn(err error) {
	if err != nil {
		p.Log.Warn("service manager not told", "err", err)
	}
}

// noSockets is used without systemd.
type noSockets struct{}

func (noSockets) Keep(string, net.Listener) error   { return nil }
func (noSockets) Kept(string) (net.Listener, error) { return nil, nil }

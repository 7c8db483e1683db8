// Package verify shows that a GPU keeps its limits: it runs a CUDA client through the way of
// a job, as an account that jobs may have, and looks what the client gets. It must be an MPS
// client, get memory below its limit and none above. With health.open = "verify" a GPU takes
// no jobs before that has been shown.
//
// Start at Verifier.GPU. It enters the GPU as a job would, runs the client (client.go), judges
// what was seen (judge.go) and keeps the result (results.go). Whatever happens, nothing else
// of it stays. Run verifies idle GPUs where a verification is the condition for opening.
package verify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Client is a CUDA client that runs; cuda.Client is the real one. Its methods are those of a
// process and cannot be parted.
type Client interface {
	PID() int
	// Tried is closed when it holds still or has ended.
	Tried() <-chan struct{}
	Report() cuda.Report
	// End lets it leave or kills it; false if it is still there.
	End() bool
}

// Admission decides on verifications as on jobs.
type Admission interface {
	// Open says whether a GPU takes jobs now.
	Open(g *plan.GPU) bool
	// Well says whether a GPU would take jobs now if it were verified.
	Well(g *plan.GPU) bool
	// Reserve enters a job of the default size, so that nobody else gets the GPU. Release
	// gives it back and shuts the account out.
	Reserve(g *plan.GPU, uid uint32) (grant *api.Grant, release func(), refusal *api.Refusal)
}

// Jobs are the running jobs.
type Jobs interface {
	// Busy says whether a job that has not ended has a part of a GPU.
	Busy(u gpu.UUID) bool
	// Unknown says which job has a GPU that is not known; empty if there is none.
	Unknown() string
}

// Servers are the MPS servers of the node's control daemons.
type Servers interface {
	// Servers lists a GPU's with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
	// EndClient lets a client leave its server.
	EndClient(ctx context.Context, u gpu.UUID, pid int)
}

// Options are what a Verifier works with.
type Options struct {
	// Start starts a client; nil if there are no GPUs.
	Start     func(context.Context, cuda.Order) (Client, error)
	Admission Admission
	Jobs      Jobs
	Servers   Servers
	Log       *slog.Logger
	// File keeps the results for the next agent.
	File string
	// Own is the agent's account.
	Own uint32
	// Node is what is known of the node now.
	Node func() Node
	// Changed is called when START has to see something new of a GPU.
	Changed func()
	// Patience is how long a client may take. Without persistence mode the driver
	// initialises the GPU for it, and then the MPS server starts. 0 is half a minute.
	Patience time.Duration
	// Hears is how long START may take to see that a GPU is closed. A job that was matched
	// meanwhile has its hook run by then. 0 is 2 s; less than 0 does not wait.
	Hears time.Duration
}

// Node is what a verification rests on.
type Node struct {
	Plan *plan.Plan
	// First: a GPU opens only after a verification.
	First bool
	// Deadline is that of one question to a control daemon.
	Deadline time.Duration
	// Daemon is the control daemon of a GPU.
	Daemon func(u gpu.UUID) process.ID
}

// Verifier verifies GPUs, one at a time: a client costs seconds of all its GPU's time, and the
// CPUs belong to jobs. All methods may be called by several goroutines at a time.
type Verifier struct {
	Options
	turn chan struct{}

	mu    sync.Mutex
	by    map[gpu.UUID]result
	retry map[gpu.UUID]retry
	// now is the GPU that is being verified, or is about to be; empty if none is.
	now gpu.UUID
}

// New returns a Verifier without results. Read takes over those of an earlier agent.
func New(o Options) *Verifier {
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	if o.Hears == 0 {
		o.Hears = 2 * time.Second
	}
	return &Verifier{
		Options: o, turn: make(chan struct{}, 1), by: map[gpu.UUID]result{}, retry: map[gpu.UUID]retry{},
	}
}

// NoClients says why nothing can be verified.
const NoClients = "this gpuslotd runs no CUDA clients: its GPUs are read from a recorded file"

// errEnding is for callers that wait while the agent ends.
var errEnding = errors.New("gpuslotd is ending: try again when it runs")

// Able says whether there is a CUDA client to start.
func (v *Verifier) Able() bool { return v.Start != nil }

// GPU verifies one GPU. It has the GPU as a job does, for as long as it takes.
func (v *Verifier) GPU(ctx context.Context, u gpu.UUID) api.Verification {
	skip := func(why string) api.Verification { return api.Verification{UUID: string(u), Skipped: why} }
	if !v.Able() {
		return skip(NoClients)
	}
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return skip(errEnding.Error())
	}
	defer func() { v.announce(""); <-v.turn }()
	n := v.Node()
	g, ok := n.Plan.Find(u)
	if why := v.notNow(g, ok); why != "" {
		return skip(why)
	}
	who, err := v.as(ctx, g)
	if err != nil {
		return skip(err.Error())
	}
	open := v.Admission.Open(g)
	v.announce(u)
	if open {
		wait(ctx, v.Hears)
	}
	grant, release, refusal := v.Admission.Reserve(g, who.uid)
	if refusal != nil {
		return skip(refusal.Reason)
	}
	defer release()
	t := v.try(ctx, &n, g, who, grant)
	if ctx.Err() != nil {
		return skip(errEnding.Error())
	}
	r := result{Verification: t.verdict(time.Now()), Daemon: n.Daemon(u)}
	r.UUID, r.Driver = string(u), n.Plan.Driver
	v.Log.Info("verified a GPU", "gpu", u, "ok", r.OK, "text", r.Text)
	if err := v.note(u, r); err != nil {
		v.Log.Error("the result of a verification is not kept", "gpu", u, "err", err)
	}
	v.Changed()
	return r.Verification
}

// notNow says why a GPU cannot be verified now; empty if it can. What else
// closes it, admission says.
func (v *Verifier) notNow(g *plan.GPU, planned bool) string {
	switch {
	case !planned:
		return "it is not in the plan any more: gpuslot status lists the GPUs that are"
	case !g.MPS():
		return "it is not shared through MPS: there are no limits of a control daemon to verify"
	case v.Jobs.Unknown() != "":
		return v.Jobs.Unknown()
	case v.Jobs.Busy(g.UUID):
		return "jobs run on it: try again when they have ended"
	}
	return ""
}

// pace is how often Run looks for GPUs to verify.
const pace = time.Second

// Run verifies GPUs by itself where that is the condition for opening, until the context ends.
// It has a loop of its own: a client may take half a minute.
func (v *Verifier) Run(ctx context.Context) {
	for ctx.Err() == nil {
		v.Due(ctx)
		wait(ctx, pace)
	}
}

// Due verifies the idle GPUs whose time has come.
func (v *Verifier) Due(ctx context.Context) {
	n := v.Node()
	if !n.First || !v.Able() {
		return
	}
	for i := range n.Plan.GPUs {
		g := &n.Plan.GPUs[i]
		if ctx.Err() != nil {
			return
		}
		if !g.MPS() || !v.due(g.UUID, time.Now()) || v.notNow(g, true) != "" || !v.Admission.Well(g) {
			continue
		}
		if r := v.GPU(ctx, g.UUID); r.Skipped != "" && ctx.Err() == nil {
			v.skipped(g.UUID, r.Skipped, time.Now())
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

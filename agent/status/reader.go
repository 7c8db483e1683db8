package status

import (
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Running() []jobs.Job
	// Look shows the job table as it is at one moment.
	Look(at func(*jobs.View))
	// HoldOf is the hold that HTCondor is to make of a job.
	HoldOf(s starter.Starter) api.Hold
}

// Callers find the job of a process that asks; jobs.Table is the real one.
type Callers interface {
	OfCaller(c *starter.Caller) (held []jobs.Job, others map[gpu.UUID]int, err error)
}

// Closures are who closed which GPU; closures.Table is the real one.
type Closures interface {
	On(names ...gpu.UUID) closures.List
	Node() closures.Node
}

// Quiescer says how far a node is out of service; closures.Quiescer is the real one.
type Quiescer interface{ Status() api.NodeStatus }

// Faults are what the hardware reported; faults.Watcher is the real one.
type Faults interface {
	Verdict(u gpu.UUID, now time.Time) faults.Verdict
	Counts() []faults.Counted
}

// Elastic are the GPUs that serve shared and whole jobs by turns; elastic.Group is the real one.
type Elastic interface {
	// Side is why a GPU takes no shared jobs; empty if it may.
	Side(u gpu.UUID) string
}

// Partitions are static SM partitions; partitions.Partitions is the real one.
type Partitions interface {
	HasFree(u gpu.UUID, daemon process.ID) bool
	SMs(s starter.Starter, u gpu.UUID) *int
}

// Verifier verifies GPUs; verify.Verifier is the real one.
type Verifier interface {
	Runs(u gpu.UUID) bool
	Last(u gpu.UUID) *api.Verification
}

// Access is who may open which pipe directory; access.List is the real one.
type Access interface {
	// LeftBehind says which process computes on a GPU without access.
	LeftBehind(u gpu.UUID, own uint32, checked mps.Checked) string
}

// Limits are the driver's, on jobs' cgroups; budget.Limits is the real one.
type Limits interface {
	// EnforcedBy is what enforces a job's budget, otherwise where the driver does not.
	EnforcedBy(j jobs.Job, otherwise string, now time.Time) string
}

// Samples are what jobs use; sampling.Loop is the real one.
type Samples interface {
	Last() *usage.Snapshot
	Uses(u gpu.UUID) sampling.Uses
}

// Startds are HTCondor's; startd.Startds are the real ones.
type Startds interface {
	Said() *startd.Said
	// Entered lets them be asked again soon.
	Entered()
}

// Feedback is what became of answers to the startd's programs; server.Feedback is the real one.
type Feedback interface {
	Worst() (ok bool, at time.Time, asked bool)
	// TookAt is when a program of the startd's last took an answer.
	TookAt(op api.Op) time.Time
}

// Options are what a Reader works with.
type Options struct {
	Version, ConfigFile string
	// Own is the agent's account.
	Own uint32
	// Node is what the last round found.
	Node func() Node
	// Closed is why jobs start nowhere on this node; empty if nothing keeps all of them.
	Closed func(now time.Time) string
	// Seen says whether the budget watch sees the jobs of a GPU.
	Seen func(n *Node, g *plan.GPU, now time.Time) gpu.Measured[bool]
	// Unlisted is VRAM of a GPU in use that NVML lists with no process.
	Unlisted func(n *Node, g *plan.GPU, now time.Time) sampling.Unlisted
	// Warnings are what parts of the agent have to report, as complete sentences.
	Warnings   func() []string
	Jobs       Jobs
	Callers    Callers
	Closures   Closures
	Quiescer   Quiescer
	Faults     Faults
	Elastic    Elastic
	Partitions Partitions
	Verifier   Verifier
	Access     Access
	Limits     Limits
	Samples    Samples
	Startds    Startds
	Feedback   Feedback
	// Quiet: the agent touches no GPU.
	Quiet func() bool
}

// Reader takes snapshots. It keeps no state, and several goroutines may use it.
type Reader struct{ Options }

// New returns a reader.
func New(o Options) *Reader { return &Reader{o} }

// Look returns the node now, for people. After bad news of the startd it is asked again: whoever
// looks may just have restarted it, and the next answer shall know.
func (r *Reader) Look(now time.Time) *Snapshot {
	if said := r.Startds.Said(); said.Err != nil || len(said.Changes) > 0 {
		r.Startds.Entered()
	}
	return r.Take(now)
}

// Take returns the node now.
func (r *Reader) Take(now time.Time) *Snapshot {
	unknown := ""
	r.Jobs.Look(func(v *jobs.View) { unknown = v.Unknown() }) // first: one that becomes known is in the table
	s := &Snapshot{
		Unknown: unknown, Node: r.Node(), At: now, Version: r.Version, ConfigFile: r.ConfigFile, Phase: r.Closures.Node(),
		Running: r.Jobs.Running(), Usage: r.Samples.Last(), Startds: r.Startds.Said(), Faults: r.Faults.Counts(),
		Warnings: r.Warnings(), NotRoot: r.Own != 0,
	}
	if s.Host = s.Plan.Host.Name; !s.Planned {
		s.Host, _ = os.Hostname() // empty is as good
	}
	if s.Phase.Phase != closures.Serving {
		n := r.Quiescer.Status()
		s.Service = &n
	}
	s.Silent, s.SilentKnown = r.silence(s)
	s.FeedbackOK, s.FeedbackAt, s.FeedbackAsked = r.Feedback.Worst()
	for i := range s.Plan.GPUs {
		s.GPUs = append(s.GPUs, r.GPU(&s.Node, &s.Plan.GPUs[i], now))
	}
	return s
}

// GPU returns one GPU of a node now.
func (r *Reader) GPU(n *Node, g *plan.GPU, now time.Time) GPU {
	out := r.judge(n, g, now)
	out.GPU, out.Daemon, out.InForce = g, n.Daemons[g.UUID], n.Modes[g.UUID]
	out.Fault = r.Faults.Verdict(g.Physical(), now)
	out.Uses, out.Seen, out.Unlisted = r.Samples.Uses(g.UUID), r.Seen(n, g, now), r.Unlisted(n, g, now)
	out.Verified, out.Verifying = r.Verifier.Last(g.UUID), r.Verifier.Runs(g.UUID)
	for i := range out.Jobs {
		j := &out.Jobs[i]
		j.Enforced, j.Hold = r.enforced(&out, j.Job, now), r.Jobs.HoldOf(j.Starter).Reason
		j.SMs = r.Partitions.SMs(j.Starter, g.UUID)
	}
	return out
}

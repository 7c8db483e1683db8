// Package partitions makes the static SM partitions of this node's GPUs and knows which job
// has which. A GPU with threads = "partitioned" gives each of its jobs some of its
// multiprocessors alone: its control daemon makes one partition for each share, and a job
// gets one through its environment. Partitions end with their control daemon.
//
// Start at Partitions. make.go makes what is missing and reads it back, saved.go keeps it for
// the next agent. Who starts control daemons is agent/daemons.
package partitions

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Daemons are the control daemons of this node.
type Daemons interface {
	// Partitions lists those of a GPU: see mps.Daemon.Partitions.
	Partitions(ctx context.Context, u gpu.UUID) ([]mps.Partition, error)
	// AddPartition makes one of some chunks: see mps.Daemon.AddPartition.
	AddPartition(ctx context.Context, u gpu.UUID, chunks int) (id string, err error)
	// Servers lists a GPU's MPS servers with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
}

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	// Look shows the jobs of one time.
	Look(at func(v *jobs.View))
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Runs(p process.ID) bool
}

// Options are what Partitions work with.
type Options struct {
	// File keeps them for the next agent.
	File      string
	Daemons   Daemons
	Jobs      Jobs
	Processes Processes
	Log       *slog.Logger
}

// Partitions are the static SM partitions that were made, and whose they are. A daemon cuts
// their ids short, so the agent's own word counts. All methods may be called by several
// goroutines at a time.
type Partitions struct {
	file      string
	daemons   Daemons
	jobs      Jobs
	processes Processes
	log       *slog.Logger

	// turn is held while the file is written. It is taken before mu, and never while
	// the job table is locked.
	turn sync.Mutex
	// mu guards what follows; no call is made under it. It may be taken while
	// the job table is locked, never the other way round.
	mu   sync.Mutex
	made map[gpu.UUID]set
	had  map[jobs.Key]owned
}

// set are the partitions of one control daemon, which end with it.
type set struct {
	GPU    gpu.UUID   `json:"gpu"`
	Daemon process.ID `json:"daemon"`
	// IDs are what clients name: "<GPU UUID>/<name>".
	IDs []string `json:"partitions"`
	// SMs is the size of each in multiprocessors, as the daemon said it; 0 if it
	// did not.
	SMs int `json:"multiprocessors,omitempty"`
}

// owned is a job's partition.
type owned struct {
	Starter starter.Starter `json:"starter"`
	GPU     gpu.UUID        `json:"gpu"`
	ID      string          `json:"partition"`
}

func (o owned) key() jobs.Key { return jobs.KeyOf(o.Starter, o.GPU) }

// New returns Partitions of which nothing is known. Read takes over what an earlier agent knew.
func New(o Options) *Partitions {
	return &Partitions{
		file: o.File, daemons: o.Daemons, jobs: o.Jobs, processes: o.Processes, log: o.Log,
		made: map[gpu.UUID]set{}, had: map[jobs.Key]owned{},
	}
}

// free is the partition of a starter: the one it has, or one that nobody has; empty if there
// is none. One that its daemon no longer has is nobody's, but its id stays taken: the next
// daemon may give it out again.
func free(ids []string, had []owned, s starter.Starter) string {
	taken := map[string]bool{}
	for _, o := range had {
		if !o.Starter.Is(s) {
			taken[o.ID] = true
		} else if slices.Contains(ids, o.ID) {
			return o.ID
		}
	}
	for _, id := range ids {
		if !taken[id] {
			return id
		}
	}
	return ""
}

// Offer is the partition that a starter's job would get of a control daemon; empty if none is
// free. Running are the jobs, while they cannot change.
func (p *Partitions) Offer(running *jobs.View, s starter.Starter, u gpu.UUID, daemon process.ID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.made[u]
	if of.Daemon != daemon {
		return ""
	}
	var had []owned
	for _, o := range p.had {
		if o.GPU == u && (o.Starter.Is(s) || p.inUse(running, o)) {
			had = append(had, o)
		}
	}
	return free(of.IDs, had, s)
}

// inUse says whether a partition may still be in use: its job is in the job table, or its
// starter runs. A verification of the agent's own, whose starter is the agent, is in the job
// table for as long as it takes.
func (p *Partitions) inUse(running *jobs.View, o owned) bool {
	return running.Has(o.Starter, o.GPU) || o.Starter.PID != os.Getpid() && p.processes.Runs(o.Starter.ID)
}

// HasFree says whether a control daemon has a partition for one more job.
func (p *Partitions) HasFree(u gpu.UUID, daemon process.ID) bool {
	has := false
	p.jobs.Look(func(running *jobs.View) { has = p.Offer(running, starter.Starter{}, u, daemon) != "" })
	return has
}

// Take gives a partition that was offered to a job. Undo takes it back, if the job comes to
// nothing; it is nil if the job had the partition before. Write then keeps it.
func (p *Partitions) Take(s starter.Starter, u gpu.UUID, id string) (undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := owned{Starter: s, GPU: u, ID: id}
	if p.had[o.key()] == o {
		return nil
	}
	maps.DeleteFunc(p.had, func(_ jobs.Key, other owned) bool {
		return other.GPU == o.GPU && other.ID == o.ID // its slot has ended
	})
	p.had[o.key()] = o
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.had[o.key()] == o {
			delete(p.had, o.key())
		}
	}
}

// Drop drops the partitions of jobs that have ended.
func (p *Partitions) Drop() error {
	p.jobs.Look(func(running *jobs.View) {
		p.mu.Lock()
		defer p.mu.Unlock()
		maps.DeleteFunc(p.had, func(_ jobs.Key, o owned) bool { return !p.inUse(running, o) })
	})
	return p.Write()
}

// of are the partitions of a daemon; none if they are another's.
func (p *Partitions) of(u gpu.UUID, daemon process.ID) set {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.made[u]; s.Daemon == daemon {
		return s
	}
	return set{GPU: u, Daemon: daemon}
}

// note takes what was made and keeps it for the next agent.
func (p *Partitions) note(s set) error {
	p.mu.Lock()
	p.made[s.GPU] = s
	p.mu.Unlock()
	return p.Write()
}

// SMs is how many multiprocessors a job has for itself; nil if it has no partition, or its
// daemon did not say.
func (p *Partitions) SMs(s starter.Starter, u gpu.UUID) *int {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.made[u]
	if o, ok := p.had[jobs.KeyOf(s, u)]; !ok || of.SMs == 0 || !slices.Contains(of.IDs, o.ID) {
		return nil
	}
	return &of.SMs
}

package agent

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// SMPartitions are the static SM partitions of the node's control daemons.
type SMPartitions interface {
	// Partitions lists those of a GPU: see mps.Daemon.Partitions.
	Partitions(ctx context.Context, u gpu.UUID) ([]mps.Partition, error)
	// AddPartition makes one of some chunks: see mps.Daemon.AddPartition.
	AddPartition(ctx context.Context, u gpu.UUID, chunks int) (id string, err error)
}

func (c controlDaemons) Partitions(ctx context.Context, u gpu.UUID) ([]mps.Partition, error) {
	d, err := c.Daemon(u)
	if err != nil {
		return nil, err
	}
	return d.Partitions(ctx)
}

func (c controlDaemons) AddPartition(ctx context.Context, u gpu.UUID, chunks int) (string, error) {
	d, err := c.Daemon(u)
	if err != nil {
		return "", err
	}
	return d.AddPartition(ctx, chunks)
}

// partitions are the static SM partitions that were made, and whose they are.
// A daemon cuts their ids short, so the agent's own word counts.
type partitions struct {
	// turn is held while the file is written. It is taken before mu, and never while
	// the job table is locked.
	turn sync.Mutex
	file string
	// mu guards what follows; no call is made under it. It may be taken while
	// the job table is locked, never the other way round.
	mu   sync.Mutex
	made map[gpu.UUID]partitionSet
	held map[jobs.Key]holding
}

// partitionSet are the partitions of one control daemon, which end with it.
type partitionSet struct {
	GPU    gpu.UUID   `json:"gpu"`
	Daemon process.ID `json:"daemon"`
	// IDs are what clients name: "<GPU UUID>/<name>".
	IDs []string `json:"partitions"`
	// SMs is the size of each in multiprocessors, as the daemon said it; 0 if it
	// did not.
	SMs int `json:"multiprocessors,omitempty"`
}

// holding is a slot's partition.
type holding struct {
	Starter starter.Starter `json:"starter"`
	GPU     gpu.UUID        `json:"gpu"`
	ID      string          `json:"partition"`
}

func (h holding) key() jobs.Key { return jobs.KeyOf(h.Starter, h.GPU) }

func newPartitions(file string) *partitions {
	return &partitions{file: file, made: map[gpu.UUID]partitionSet{}, held: map[jobs.Key]holding{}}
}

// freePartition is the partition of a starter: the one it has, or one that
// nobody has; empty if there is none. One that its daemon no longer has is
// nobody's, but its id stays taken: the next daemon may give it out again.
func freePartition(ids []string, held []holding, s starter.Starter) string {
	taken := map[string]bool{}
	for _, h := range held {
		if !h.Starter.Is(s) {
			taken[h.ID] = true
		} else if slices.Contains(ids, h.ID) {
			return h.ID
		}
	}
	for _, id := range ids {
		if !taken[id] {
			return id
		}
	}
	return ""
}

// offer is the partition that a starter's job would get of a daemon; empty if
// none is free. Live says whether a holder may still run.
func (p *partitions) offer(s starter.Starter, u gpu.UUID, daemon process.ID, live func(holding) bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.made[u]
	if set.Daemon != daemon {
		return ""
	}
	var held []holding
	for _, h := range p.held {
		if h.GPU == u && (h.Starter.Is(s) || live(h)) {
			held = append(held, h)
		}
	}
	return freePartition(set.IDs, held, s)
}

// noPartition closes a GPU with shares left.
const noPartition = "none of its static SM partitions is free: jobs hold them that the startd does not tell of; look at gpuslot status"

// hasPartition says whether a GPU has a partition for one more job.
func (a *Agent) hasPartition(u gpu.UUID, h Health) bool {
	free := false
	a.jobs.Look(func(v *jobs.View) {
		free = a.partitions.offer(starter.Starter{}, u, h.Proof.Process(), a.inPartition(v)) != ""
	})
	return free
}

// take gives a partition that was offered to a job, and says whether that is new: then
// write has to keep it for the next agent, or drop takes it back.
func (p *partitions) take(h holding) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[h.key()] == h {
		return false
	}
	maps.DeleteFunc(p.held, func(_ jobs.Key, o holding) bool {
		return o.GPU == h.GPU && o.ID == h.ID // its slot has ended
	})
	p.held[h.key()] = h
	return true
}

// drop takes a partition back that was given in vain.
func (p *partitions) drop(h holding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[h.key()] == h {
		delete(p.held, h.key())
	}
}

// free drops what nobody holds any more.
func (p *partitions) free(live func(holding) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.held, func(_ jobs.Key, h holding) bool { return !live(h) })
}

// of are the partitions of a daemon; none if they are another's.
func (p *partitions) of(u gpu.UUID, daemon process.ID) partitionSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set := p.made[u]; set.Daemon == daemon {
		return set
	}
	return partitionSet{GPU: u, Daemon: daemon}
}

// note takes what was made and keeps it for the next agent.
func (p *partitions) note(set partitionSet) error {
	p.mu.Lock()
	set.IDs = slices.Clone(set.IDs)
	p.made[set.GPU] = set
	p.mu.Unlock()
	return p.write()
}

// smsOf is how many multiprocessors a slot has for itself; nil if it has no
// partition, or its daemon did not say.
func (p *partitions) smsOf(s starter.Starter, u gpu.UUID) *int {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.made[u]
	if h, ok := p.held[jobs.KeyOf(s, u)]; !ok || set.SMs == 0 || !slices.Contains(set.IDs, h.ID) {
		return nil
	}
	return &set.SMs
}

// inPartition says whether a partition may still be in use: its slot is in the job table,
// or its starter runs.
func (a *Agent) inPartition(running *jobs.View) func(holding) bool {
	return func(h holding) bool {
		return running.Has(h.Starter, h.GPU) || h.Starter.Slot != verifySlot && a.proc.Runs(h.Starter.ID)
	}
}

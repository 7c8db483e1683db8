package simulate

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
	"github.com/gpuslot/gpuslot/gpu"
)

// Pool is what jobs run on, and how HTCondor brings them there.
type Pool struct {
	Groups   []Group
	Matching Matching
	Model    Model
}

// Group is a number of equal nodes.
type Group struct {
	Name  string
	Count int
	// Inventory is that of one of the nodes.
	Inventory gpu.Inventory
	// Config is the text of its gpuslot.toml, which the policy Mixed uses; empty for
	// the defaults.
	Config string
	// Speed is how fast one of its GPUs works against that on which the jobs' run
	// times were measured; 0 counts as 1.
	Speed float64
	// Power is what a node and its GPUs take.
	Power Power
}

// Rank says which of the slots that fit a job gets.
type Rank string

// First is the first one in the order of the pool, which fills GPU after GPU;
// Spread is that with the most free VRAM.
const (
	First  Rank = "first"
	Spread Rank = "spread"
)

// Order says which of the jobs that wait is matched first.
type Order string

// By arrival; or that of the owner with the fewest running jobs (HTCondor's fair
// share without its memory).
const (
	ByArrival Order = "arrival"
	ByOwner   Order = "owner"
)

// Matching are the times and rules of HTCondor. They are stated, not measured on
// the site.
type Matching struct {
	// Interval is the time between two negotiation cycles (NEGOTIATOR_INTERVAL);
	// 0: a job is matched at the moment when it can be.
	Interval time.Duration
	// Start is the time from the match to the job's own first instruction, in which
	// its slot is claimed: shadow, starter, files.
	Start time.Duration
	// Worklife is how long a claim takes the next job of the same owner and size
	// without a negotiation (CLAIM_WORKLIFE); 0: never.
	Worklife time.Duration
	Rank     Rank
	Order    Order
}

// DefaultMatching are HTCondor's defaults, and a start of two seconds.
func DefaultMatching() Matching {
	return Matching{Interval: time.Minute, Start: 2 * time.Second, Worklife: 20 * time.Minute, Rank: First,
		Order: ByArrival}
}

// Power is what one node takes, in watts.
type Power struct {
	// Host is the node without its GPUs, Thread what each busy CPU adds.
	Host, Thread float64
	// Idle is a GPU without work; Active what it takes more while a kernel runs on
	// it, Full what it takes more still with all multiprocessors busy.
	Idle, Active, Full float64
}

// Model is how jobs slow each other down; docs/simulate.md has the formulae.
type Model struct {
	// Slicing is how much longer kernels take together when several processes share
	// a GPU in time slices; MPS and MIG the same for each kernel of a job that has
	// neighbours on the control daemon, and for one on a MIG device. 0.05 is 5 %.
	Slicing, MPS, MIG float64
	// ThreadsPerCore is how many of a node's CPUs are one core; 0 counts as 1. With more
	// CPUs in use than cores the host's part of each job becomes longer.
	ThreadsPerCore int
	// Case is what is assumed of what nobody knows.
	Case sharing.Case
}

// maxNodes is more than any pool has.
const maxNodes = 1 << 20

// Check returns what is impossible.
func (p Pool) Check() error {
	if len(p.Groups) == 0 {
		return errors.New("the pool has no nodes")
	}
	nodes := 0
	for _, g := range p.Groups {
		if g.Count < 1 || g.Count > maxNodes || nodes+g.Count > maxNodes {
			return fmt.Errorf("nodes %s: there are %d; it is 1 to %d, all groups together", g.Name, g.Count, maxNodes)
		}
		nodes += g.Count
		if len(g.Inventory.GPUs) == 0 {
			return fmt.Errorf("nodes %s have no GPU", g.Name)
		}
		if h := g.Inventory.Host; h.Memory > maxAmount || h.CPUs > int(maxAmount) {
			return fmt.Errorf("nodes %s: %d CPUs and %s of memory; at most %d of each", g.Name, h.CPUs, h.Memory,
				int64(maxAmount))
		}
		if err := g.Inventory.Check(); err != nil {
			return fmt.Errorf("nodes %s: %w", g.Name, err)
		}
		if !within(g.Speed, 0, 1000) {
			return fmt.Errorf("nodes %s: their speed is %g; 1 is that of the GPU on which the jobs were measured",
				g.Name, g.Speed)
		}
		for _, watts := range []float64{g.Power.Host, g.Power.Thread, g.Power.Idle, g.Power.Active, g.Power.Full} {
			if !within(watts, 0, 1e6) {
				return fmt.Errorf("nodes %s: a power is %g W; it is 0 to 1000000", g.Name, watts)
			}
		}
	}
	return errors.Join(p.Matching.check(), p.Model.check())
}

func within(v, least, most float64) bool { return !math.IsNaN(v) && v >= least && v <= most }

func (m Matching) check() error {
	const most = 365 * 24 * time.Hour
	for _, d := range []time.Duration{m.Interval, m.Start, m.Worklife} {
		if d < 0 || d > most {
			return fmt.Errorf("%s: the times of matching are 0 to a year", d)
		}
	}
	if m.Rank != First && m.Rank != Spread {
		return fmt.Errorf("rank %q: it is %s or %s", m.Rank, First, Spread)
	}
	if m.Order != ByArrival && m.Order != ByOwner {
		return fmt.Errorf("order %q: it is %s or %s", m.Order, ByArrival, ByOwner)
	}
	return nil
}

func (m Model) check() error {
	for _, loss := range []float64{m.Slicing, m.MPS, m.MIG} {
		if !within(loss, 0, 100) {
			return fmt.Errorf("a loss of the model is %g; it is a part of the time, 0 to 100", loss)
		}
	}
	if m.ThreadsPerCore < 0 || m.ThreadsPerCore > 8 {
		return fmt.Errorf("threads_per_core is %d; it is 1 to 8", m.ThreadsPerCore)
	}
	return nil
}

// DefaultModel takes nothing away but what jobs take from each other: losses are to
// be measured (gpuslot bench), not guessed. Cores have two threads, as servers' mostly do.
func DefaultModel() Model { return Model{ThreadsPerCore: 2} }

// DefaultWork is what is taken for usual of a job of which nothing is known: a kernel
// half of the time, which fills a third of the GPU and of its bandwidth.
func DefaultWork() Work { return Work{Kernel: 0.5, SM: 1. / 3, Bandwidth: 1. / 3} }

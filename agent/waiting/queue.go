// Package waiting knows what the pool's idle jobs wait for, as far as this node changes by
// it: MIG layouts follow it, elastic GPUs serve shared or whole jobs by it, and one shared
// GPU is closed to small requests while a large one has waited for long.
//
// The access points count it and say it in their schedds' own ads; the node asks the
// collector for these ads. Start at Queue: Ask asks once, Elastic is what the last answer
// says, and Reserve chooses the GPU for a large request. What waits is only
// ever a reason to keep idle GPUs for it: no limit of a running job rests on it.
package waiting

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Pool is HTCondor's collector.
type Pool interface {
	// Demand is what the pool's idle jobs wait for.
	Demand(ctx context.Context, now time.Time) (condor.Demand, error)
}

// Interest says which waiting jobs count for this node. A zero Node has neither elastic
// nor shared GPUs.
type Interest struct {
	Node condor.Node
	// Rules are those of the elastic GPUs.
	Rules elastic.Rules
	// Large is from which request_vram on a job is a large one, LargeAfter how long it
	// waits before it counts; 0 for never.
	Large      gpu.MiB
	LargeAfter time.Duration
}

// Queue is what the pool said last. Its methods may be called by several goroutines at a
// time. No lock is held while the pool is asked.
type Queue struct {
	log *slog.Logger

	mu     sync.Mutex
	at     time.Time
	demand elastic.Demand
	// large are the request_vram of the jobs that wait for a large share, that of the one
	// that has waited longest first.
	large []gpu.MiB
	err   error
	// reserved is the GPU that is closed to small requests.
	reserved reservation
}

// NewQueue returns a queue of which nothing is known.
func NewQueue(log *slog.Logger) *Queue { return &Queue{log: log} }

// stale is how old an answer may be.
const stale = 3 * time.Minute

// known says whether the last answer still counts. The caller holds mu.
func (q *Queue) known(now time.Time) bool { return !q.at.IsZero() && now.Sub(q.at) <= stale }

// Elastic is the demand for elastic GPUs, not known where nobody answered lately.
func (q *Queue) Elastic(now time.Time) elastic.Demand {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.known(now) {
		return elastic.Demand{}
	}
	return q.demand
}

// Err is why nobody knows what waits; nil if that is known or nobody asks.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

var errSilent = errors.New("no access point says what its jobs wait for: give the access points what " +
	"gpuslot condor-config --for access-point prints, and gpuslot's package")

// Ask asks once, and returns the answer. What could not be asked leaves the last answer to
// grow old; Err says why.
func (q *Queue) Ask(ctx context.Context, pool Pool, i Interest) (condor.Demand, error) {
	now := time.Now()
	d, err := pool.Demand(ctx, now)
	unknown := err
	if err == nil && d.At.IsZero() {
		unknown = errSilent
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if unknown != nil && q.err == nil {
		q.log.Warn("what waits in the pool is not known", "err", unknown)
	}
	q.err = unknown
	if unknown == nil {
		q.at, q.demand, q.large = now, i.elastic(d), i.large(d)
	}
	return d, err
}

// elastic is what waits for the node's elastic GPUs.
func (i Interest) elastic(d condor.Demand) elastic.Demand {
	out := elastic.Demand{Known: true}
	whole := map[int]condor.Waiting{}
	for _, w := range d.Waiting {
		if w.Waited() < i.Rules.Patience {
			continue
		}
		out.Shared = out.Shared || i.Node.TakesShared(w)
		if i.Node.TakesWhole(w, i.Rules.Max) {
			keepLonger(whole, w.GPUs, w)
		}
	}
	for _, n := range byWait(whole) {
		out.Whole = append(out.Whole, elastic.Request{GPUs: n, At: whole[n].At})
	}
	return out
}

// large are the sizes of the large jobs, that of the one that has waited longest first.
func (i Interest) large(d condor.Demand) []gpu.MiB {
	large := map[gpu.MiB]condor.Waiting{}
	for _, w := range d.Waiting {
		if i.LargeAfter > 0 && w.Waited() >= i.LargeAfter && w.VRAM >= i.Large && i.Node.TakesShared(w) {
			keepLonger(large, w.VRAM, w)
		}
	}
	return byWait(large)
}

// keepLonger keeps of jobs that want the same those that have waited longer.
func keepLonger[K comparable](all map[K]condor.Waiting, k K, w condor.Waiting) {
	if old, known := all[k]; !known || w.Waits > old.Waits {
		all[k] = w
	}
}

// byWait is what the jobs want, that of those that have waited longest first.
func byWait[K cmp.Ordered](all map[K]condor.Waiting) []K {
	return slices.SortedFunc(maps.Keys(all), func(a, b K) int {
		return cmp.Or(cmp.Compare(all[b].Waits, all[a].Waits), cmp.Compare(a, b))
	})
}

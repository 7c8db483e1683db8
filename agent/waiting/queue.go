// Package waiting knows which jobs wait in the pool, as far as GPUs of this node change
// for them: elastic GPUs follow the jobs that wait, and one shared GPU is closed to small
// requests while a large one has waited for long.
//
// Start at Queue: Run asks the access points again and again, Elastic and Large are their
// last answer, and Reserve chooses the GPU for a large request. What waits is only ever a
// reason to keep idle GPUs for it: no limit of a running job rests on it.
package waiting

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// AccessPoints are those of the pool.
type AccessPoints interface {
	// Waiting are idle jobs, at most limit of each access point.
	Waiting(ctx context.Context, constraint string, limit int) ([]condor.WaitingJob, error)
}

// Queue is what the access points said last of the jobs that wait, and the GPU that is
// closed to small requests for one of them. Its methods may be called by several
// goroutines at a time. No lock is held while the access points are asked.
type Queue struct {
	log *slog.Logger

	mu     sync.Mutex
	at     time.Time
	demand elastic.Demand
	// large is the request_vram of the job that has waited longest for a large share.
	large gpu.MiB
	err   error
	// reserved is the GPU that is closed to small requests.
	reserved gpu.UUID
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

// Large is the large request that has waited for too long, in MiB; 0 if none has.
func (q *Queue) Large(now time.Time) gpu.MiB {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.known(now) {
		return 0
	}
	return q.large
}

// Err is why nobody knows what waits; nil if that is known or nobody asks.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

const (
	// queueTimeout bounds one question to all access points.
	queueTimeout = 20 * time.Second
	// fewJobs are enough to find the one that has waited longest, or nearly.
	fewJobs = 100
)

// Run asks until the context ends. Want says each time which jobs to ask for, nothing
// where that makes no difference, and how long to wait before the next time.
func (q *Queue) Run(ctx context.Context, points AccessPoints, want func() (condor.Idle, time.Duration)) {
	for ctx.Err() == nil {
		idle, pause := want()
		if points != nil && (idle.Whole != "" || idle.Large != "") {
			q.Ask(ctx, points, idle)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Ask asks once. What could not be asked leaves the last answer to grow old; Err says why.
func (q *Queue) Ask(ctx context.Context, points AccessPoints, want condor.Idle) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	ask := func(constraint string, limit int) ([]condor.WaitingJob, error) {
		if constraint == "" {
			return nil, nil
		}
		jobs, err := points.Waiting(ctx, constraint, limit)
		slices.SortStableFunc(jobs, func(a, b condor.WaitingJob) int { return cmp.Compare(b.Waited, a.Waited) })
		return jobs, err
	}
	whole, err1 := ask(want.Whole, fewJobs)
	shared, err2 := ask(want.Shared, 1)
	large, err3 := ask(want.Large, fewJobs)
	err := errors.Join(err1, err2, err3)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		if q.err == nil {
			q.log.Warn("the pool's queues do not tell which jobs wait", "err", err)
		}
		q.err = err
		return
	}
	q.err, q.at = nil, time.Now()
	q.demand, q.large = elastic.Demand{Known: true, Shared: len(shared) > 0}, 0
	if len(whole) > 0 {
		q.demand.Whole = int(whole[0].GPUs)
	}
	if len(large) > 0 {
		q.large = gpu.MiB(large[0].VRAM)
	}
}

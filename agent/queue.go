package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Queue is what waits in the pool.
type Queue interface {
	// Waiting are idle jobs, at most limit of each access point.
	Waiting(ctx context.Context, constraint string, limit int) ([]condor.WaitingJob, error)
}

// Waiting asks with condor_q -global.
func (HTCondor) Waiting(ctx context.Context, constraint string, limit int) ([]condor.WaitingJob, error) {
	return condor.IdleJobs(ctx, constraint, limit)
}

// queue is what the access points said last of the jobs that wait.
type queue struct {
	mu     sync.Mutex
	at     time.Time
	demand elastic.Demand
	// large is the request_vram of the job that has waited longest for a large share.
	large gpu.MiB
	err   error
}

// stale is how old an answer may be.
const stale = 3 * time.Minute

// elastic is the demand for elastic GPUs, not known where nobody answered lately.
func (q *queue) elastic(now time.Time) elastic.Demand {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at.IsZero() || now.Sub(q.at) > stale {
		return elastic.Demand{}
	}
	return q.demand
}

// waitsForVRAM is the large request that has waited for too long; 0 if none has.
func (q *queue) waitsForVRAM(now time.Time) gpu.MiB {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at.IsZero() || now.Sub(q.at) > stale {
		return 0
	}
	return q.large
}

// problem is why nobody knows what waits; nil if that is known or nobody asks.
func (q *queue) problem() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

const (
	askQueueMost  = 30 * time.Second
	askQueueLeast = 2 * time.Second
	// queueTimeout bounds one question to all access points.
	queueTimeout = 20 * time.Second
	// fewJobs are enough to find the one that has waited longest, or nearly.
	fewJobs = 100
)

// watchQueue asks the access points again and again, where that is of use.
func (a *Agent) watchQueue(ctx context.Context, q Queue) {
	for ctx.Err() == nil {
		v := a.view.Load()
		if want := v.idle(); q != nil && v.config.Elastic.Demand == config.DemandQueue && (want.Whole != "" || want.Large != "") {
			a.askQueue(ctx, q, want)
		}
		pause(ctx, askQueuePeriod(v.config))
	}
}

// askQueuePeriod follows the shortest wait that is to be noticed.
func askQueuePeriod(c config.Config) time.Duration {
	d := c.Elastic.Patience
	if l := c.Placement.LargeAfter; l > 0 {
		d = min(d, l)
	}
	return min(max(d/2, askQueueLeast), askQueueMost)
}

// idle says which jobs to ask for; empty where it makes no difference.
func (v *view) idle() condor.Idle {
	n := startd.Node(v.plan, v.config)
	rules := rulesOf(v.config.Elastic, len(v.plan.ElasticGPUs()))
	return n.Idle(v.config.Elastic.Patience, v.config.Placement.LargeAfter, rules.Max, int64(v.largeRequest()))
}

// largeRequest is from which request_vram on a job is a large one.
func (v *view) largeRequest() gpu.MiB {
	if n := v.config.Placement.LargeRequest; n > 0 {
		return n
	}
	var largest gpu.MiB
	for _, g := range v.plan.GPUs {
		if g.Shared() {
			largest = max(largest, g.LargestRequest)
		}
	}
	return largest / 2
}

// askQueue asks once. What could not be asked leaves the last answer to grow old.
func (a *Agent) askQueue(ctx context.Context, q Queue, want condor.Idle) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	ask := func(constraint string, limit int) ([]condor.WaitingJob, error) {
		if constraint == "" {
			return nil, nil
		}
		jobs, err := q.Waiting(ctx, constraint, limit)
		slices.SortStableFunc(jobs, func(a, b condor.WaitingJob) int { return cmp.Compare(b.Waited, a.Waited) })
		return jobs, err
	}
	whole, err1 := ask(want.Whole, fewJobs)
	shared, err2 := ask(want.Shared, 1)
	large, err3 := ask(want.Large, fewJobs)
	err := errors.Join(err1, err2, err3)
	a.queue.mu.Lock()
	defer a.queue.mu.Unlock()
	if err != nil {
		if a.queue.err == nil {
			a.log.Warn("the pool's queues do not tell which jobs wait", "err", err)
		}
		a.queue.err = err
		return
	}
	a.queue.err, a.queue.at = nil, time.Now()
	a.queue.demand, a.queue.large = elastic.Demand{Known: true, Shared: len(shared) > 0}, 0
	if len(whole) > 0 {
		a.queue.demand.Whole = int(whole[0].GPUs)
	}
	if len(large) > 0 {
		a.queue.large = gpu.MiB(large[0].VRAM)
	}
}

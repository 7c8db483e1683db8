package waiting

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// The time between two questions to the pool, and how long one may take. Access points count once a
// minute.
const (
	askMost    = time.Minute
	askLeast   = 2 * time.Second
	askTimeout = 5 * time.Second
)

// Run asks the pool again and again, while something on this node changes by the answer. It is no part
// of the agent's loop: a collector that does not answer delays nothing else. Interest is that of the
// plan in force, and answered is called with each answer.
func (q *Queue) Run(
	ctx context.Context, pool Pool, interest func() (*Interest, time.Duration), answered func(condor.Demand, error),
) {
	for ctx.Err() == nil {
		i, again := interest()
		if i != nil {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			answered(q.Ask(asking, pool, *i))
			cancel()
		}
		_ = backoff.Wait(ctx, again) // the loop looks at the context itself
	}
}

// InterestOf says which waiting jobs count on a node, nil where nothing changes by them, and when to
// ask again: that follows the shortest wait that is to be noticed. A node without a plan has a nil one.
func InterestOf(p *plan.Plan, c config.Config) (i *Interest, again time.Duration) {
	if p == nil {
		return nil, askLeast
	}
	again = askMost
	if p.Repartition() != "" {
		i, again = &Interest{}, c.Repartition.Interval()
	}
	group, large := p.ElasticGPUs(), c.Placement.LargeAfter
	if len(group) == 0 && large == 0 {
		return i, again
	}
	if large > 0 {
		again = min(again, large)
	}
	if len(group) > 0 {
		again = min(again, c.Elastic.Patience)
	}
	return &Interest{
		Node: startd.Node(*p, c), Rules: elastic.RulesOf(c.Elastic, len(group)), Large: largeRequest(p), LargeAfter: large,
	}, max(again, askLeast)
}

// largeRequest is from which request_vram on a job is a large one: half of the node's largest.
func largeRequest(p *plan.Plan) gpu.MiB {
	var largest gpu.MiB
	for _, g := range p.GPUs {
		if g.Shared() {
			largest = max(largest, g.LargestRequest)
		}
	}
	return largest / 2
}

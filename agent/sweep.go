package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/dcgm"
	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/condor"
)

// sweeper takes from jobs that have ended what they had, and records their end.
type sweeper struct {
	jobs      *jobs.Table
	access    *access.List
	sampling  *sampling.Loop
	history   *history.Writer
	ender     *ending.Ender
	admission *admission.Preparer
	limits    *budget.Limits
	nodes     *isolation.Nodes
	log       *slog.Logger
}

// sweepEvery is how long a finished job's access to its GPU may outlive it.
const sweepEvery = 5 * time.Second

// run sweeps until the context ends, and keeps the files that label the site's metrics with
// jobs.
func (s *sweeper) run(ctx context.Context, n *node) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	mapping := dcgm.Mapping{Log: s.log}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			// On an observed node each sample does: no job waits for its GPU, and the record of a
			// job has its last seconds then.
			v := n.view.Load()
			if !v.plan.Observe || !s.sampling.Fresh(time.Now()) {
				s.now()
			}
			if v.planned {
				mapping.Update(v.config.Usage.DCGMJobMapping, &v.plan, s.jobs.Running())
			}
		}
	}
}

// now drops the jobs whose starters have ended.
func (s *sweeper) now() { s.shutOut(s.jobs.DropEnded()) }

// shutOut takes the access of accounts without a job, and records the end of jobs that were
// dropped from the job table. It waits for nothing.
func (s *sweeper) shutOut(ended []jobs.Job) {
	if err := s.access.Sweep(s.jobs.Needs); err != nil {
		s.log.Error("a pipe directory stays open", "err", err)
	}
	now := time.Now()
	for _, r := range ended {
		s.log.Info("a job ended", "slot", r.Starter.Slot, "job", r.ID, "gpu", r.GPU)
		rec := s.sampling.Record(r, now)
		s.history.Record(rec)
		s.history.Event(history.Event{
			Time: now, Kind: history.EventEnd, GPU: r.GPU, Slot: condor.SlotName(r.Starter.Slot), Job: r.ID,
			Text: history.EndText(rec),
		})
		s.ender.Forget(r.Starter)
		s.admission.Forget(r.Starter)
		s.limits.Wake()
		s.nodes.Wake()
	}
}

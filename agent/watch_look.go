package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// blindAfter is how many sampling intervals may pass without a look at a GPU
// before the budget watch counts as blind there.
const blindAfter = 2

// watchedGPU says whether the budget watch sees a GPU's jobs. Known is false
// where no budget rests on it: nothing is shared or sampled, the site does not
// hold jobs, or the driver limits their cgroups.
func (a *Agent) watchedGPU(v *view, g *plan.GPU, now time.Time) gpu.Measured[bool] {
	if a.sampler == nil || !g.Shared() || v.config.Budgets.Enforce != config.EnforceHold || a.limited(v, g.UUID) {
		return gpu.Measured[bool]{}
	}
	last := a.looks.Last(site{}.device(g))
	if a.closures.Node().Quiet() {
		return gpu.Measured[bool]{} // no jobs, and perhaps no driver
	}
	if _, served := v.daemons[g.UUID]; !served || last.IsZero() {
		return gpu.Measured[bool]{}
	}
	return gpu.Known(now.Sub(last) <= blindAfter*v.config.Usage.Interval)
}

// unwatched says why a GPU takes no jobs while the watch does not see it; empty
// if it does.
func (a *Agent) unwatched(v *view, u gpu.UUID, now time.Time) string {
	g, ok := v.plan.Find(u)
	if !ok || a.watchedGPU(v, g, now) != gpu.Known(false) {
		return ""
	}
	return fmt.Sprintf("the memory of its jobs has not been read for more than %s, so nothing holds them to their "+
		"budgets: "+
		"it opens when the driver answers again; look for NVRM lines in the kernel log", blindAfter*v.config.Usage.Interval)
}

// blindness is why the watch does not see a GPU, as far as the last sample says.
func blindness(snap *usage.Snapshot) error {
	for _, h := range snap.Sources {
		if h.Source == "nvml" && h.Err != nil {
			return h.Err
		}
	}
	return errors.New("no sample was taken: if this lasts, restart gpuslotd")
}

// guardWatch logs when the budget watch does not see a GPU any more, and when it
// does again. It has a loop of its own, because the watch's may stand still.
func (a *Agent) guardWatch(ctx context.Context) {
	if a.sampler == nil {
		return
	}
	blind := map[gpu.UUID]time.Time{}
	for ctx.Err() == nil {
		blind = a.seeWatch(blind, time.Now())
		pause(ctx, a.view.Load().config.Usage.Interval)
	}
}

// seeWatch compares what the watch sees with what it saw before; blind holds for
// each GPU that it does not see when that was found.
func (a *Agent) seeWatch(blind map[gpu.UUID]time.Time, now time.Time) map[gpu.UUID]time.Time {
	v, next := a.view.Load(), map[gpu.UUID]time.Time{}
	for i := range v.plan.GPUs {
		g := &v.plan.GPUs[i]
		sees := a.watchedGPU(v, g, now)
		since, was := blind[g.UUID]
		switch {
		case sees == gpu.Known(false) && was:
			next[g.UUID] = since
		case sees == gpu.Known(false):
			next[g.UUID] = now
			a.log.Warn("the budget watch does not see a GPU; it takes no new "+
				"jobs", "gpu", g.UUID, "last", a.looks.Last(site{}.device(g)), "err", blindness(a.sampler.Snapshot()))
			nudge(a.wake)
		case was:
			a.log.Info("the budget watch sees a GPU again", "gpu", g.UUID, "blind", now.Sub(since).Round(time.Second))
			nudge(a.wake)
		}
	}
	return next
}

// lookIntoContainers finds the processes beside MPS that could not reach it.
func (a *Agent) lookIntoContainers(jobs []rules.Job, pipes string) {
	for i := range jobs {
		j := &jobs[i]
		j.Pipes = pipes + "/" + string(j.GPU)
		for _, pid := range j.Beside {
			if a.proc.Hides(pid, j.Pipes) {
				j.Blind = append(j.Blind, pid)
			}
		}
	}
}

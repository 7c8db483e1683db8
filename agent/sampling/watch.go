package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// blindAfter is how many intervals may pass without a look at a GPU before it counts as unseen:
// nothing holds its jobs to their budgets then.
const blindAfter = 2

// looks are the times of the samples that were judged.
type looks struct {
	mu sync.Mutex
	// began is when the first was due; zero before.
	began time.Time
	at    map[usage.Device]time.Time
	// servers is the VRAM of MPS servers in the last samples that showed one.
	servers map[gpu.UUID][]gpu.MiB
	unclear map[usage.Device]unclear
}

// unclear is of a device on which it is not known whose processes are.
type unclear struct {
	// samples goes up by one in a sample with such a process, and down by one in a sample without: from 0 to
	// mostUnclear. Which process it is counts nothing: each may leave before it is known.
	samples int
	// closes: they were more than unclearAfter, and have not been 0 since. A job that has such a process now and then
	// does not open and close the GPU all the time.
	closes bool
}

const mostUnclear = 2 * unclearAfter

func (l *looks) begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.at = now, map[usage.Device]time.Time{}
}

// note takes a sample that was judged.
func (l *looks) note(snap *usage.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := func(d *usage.DeviceUsage) bool { return d.At.IsZero() || !d.At.Equal(l.at[d.Device]) }
	l.unclear = unclearIn(snap, l.unclear, fresh)
	if l.at == nil {
		l.at = map[usage.Device]time.Time{}
	}
	for i := range snap.Devices {
		l.at[snap.Devices[i].Device] = snap.Devices[i].At
	}
	before := l.servers
	l.servers = map[gpu.UUID][]gpu.MiB{}
	for u, vram := range serversIn(snap) {
		all := append(before[u], vram)
		l.servers[u] = all[max(0, len(all)-serverSamples):]
	}
}

// unclearIn is looks.unclear after a sample. One in which processes are not listed counts nothing, nor one
// that has what a device said before because it does not answer.
func unclearIn(
	snap *usage.Snapshot, before map[usage.Device]unclear, fresh func(*usage.DeviceUsage) bool,
) map[usage.Device]unclear {
	out := map[usage.Device]unclear{}
	for i := range snap.Devices {
		d := &snap.Devices[i]
		is := before[d.Device]
		switch {
		case !fresh(d):
		case slices.ContainsFunc(d.Processes.Value, usage.Process.Unclear):
			is.samples = min(is.samples+1, mostUnclear)
		case d.Processes.Known:
			is.samples = max(is.samples-1, 0)
		}
		is.closes = is.samples > unclearAfter || is.closes && is.samples > 0
		out[d.Device] = is
	}
	return out
}

// isUnclear says whether it was not known for several samples whose processes on a device are.
func (l *looks) isUnclear(d usage.Device) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unclear[d].closes
}

// last is the time of the last look at a device, or of the begin; zero before that.
func (l *looks) last(d usage.Device) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.at[d]; !l.began.IsZero() && at.After(l.began) {
		return at
	}
	return l.began
}

// Sees says whether the samples show what the jobs on a GPU use. It is not known where no budget
// rests on it: the GPU is not shared, nothing samples, the site does not have jobs held, or the
// driver limits their cgroups.
func (l *Loop) Sees(n Node, g *plan.GPU, now time.Time) gpu.Measured[bool] {
	if l.sampler == nil || !g.Shared() || n.Config.Budgets.Enforce != config.EnforceHold || l.limited(n, g.UUID) {
		return gpu.Measured[bool]{}
	}
	if n.Quiet {
		return gpu.Measured[bool]{} // no jobs, and perhaps no driver
	}
	last := l.looks.last(Device(g))
	if _, served := n.Daemons[g.UUID]; !served || last.IsZero() {
		return gpu.Measured[bool]{}
	}
	return gpu.Known(now.Sub(last) <= blindAfter*n.Config.Usage.Interval)
}

// Unseen says why a GPU takes no jobs while the samples do not show what its jobs use; empty if
// they do.
func (l *Loop) Unseen(n Node, u gpu.UUID, now time.Time) string {
	g, ok := n.Plan.Find(u)
	if !ok || l.Sees(n, g, now) != gpu.Known(false) {
		return ""
	}
	return fmt.Sprintf("the memory of its jobs has not been read for more than %s, so nothing holds them to their "+
		"budgets: it opens when the driver answers again; look for NVRM lines in the kernel log",
		blindAfter*n.Config.Usage.Interval)
}

// Enforces says whether jobs on a GPU are held to their budgets by sampling: the last sample has
// its processes and its memory.
func (l *Loop) Enforces(n Node, u gpu.UUID) bool {
	if n.Config.Budgets.Enforce != config.EnforceHold {
		return false
	}
	snap := l.Last()
	d, ok := snap.Device(snap.DeviceOf(u))
	return ok && d.Processes.Known && d.Memory.Known
}

// Watch logs when the samples do not show a GPU any more, and when they do again. It has a goroutine
// of its own, because Run may wait for the driver.
func (l *Loop) Watch(ctx context.Context) {
	if l.sampler == nil {
		return
	}
	unseen := map[gpu.UUID]time.Time{}
	for ctx.Err() == nil {
		unseen = l.check(unseen, l.Now())
		_ = backoff.Wait(ctx, l.Node().Config.Usage.Interval) // the loop looks at the context itself
	}
}

// check compares which GPUs are unseen with those that were before; it returns since when each is.
func (l *Loop) check(before map[gpu.UUID]time.Time, now time.Time) map[gpu.UUID]time.Time {
	n, unseen := l.Node(), map[gpu.UUID]time.Time{}
	for i := range n.Plan.GPUs {
		g := &n.Plan.GPUs[i]
		sees := l.Sees(n, g, now)
		since, was := before[g.UUID]
		switch {
		case sees == gpu.Known(false) && was:
			unseen[g.UUID] = since
		case sees == gpu.Known(false):
			unseen[g.UUID] = now
			l.Log.Warn("the budget watch does not see a GPU; it takes no new jobs",
				"gpu", g.UUID, "last", l.looks.last(Device(g)), "err", l.failure())
			l.Wake()
		case was:
			l.Log.Info("the budget watch sees a GPU again", "gpu", g.UUID, "blind", now.Sub(since).Round(time.Second))
			l.Wake()
		}
	}
	return unseen
}

// failure is why a GPU is unseen, as far as the last sample shows.
func (l *Loop) failure() error {
	for _, h := range l.Last().Sources {
		if h.Source == "nvml" && h.Err != nil {
			return h.Err
		}
	}
	return errors.New("no sample was taken: if this lasts, restart gpuslotd")
}

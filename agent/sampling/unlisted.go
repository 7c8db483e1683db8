package sampling

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/keepers"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// Unlisted is the VRAM of a device in use that NVML lists with no process, where that is more
// than tolerated; else 0.
type Unlisted struct {
	VRAM gpu.MiB
	// Taken is how much the pool still has for new jobs although it is in use, Eaten how much the
	// running jobs lack for their budgets.
	Taken, Eaten gpu.MiB
	// Keeper is a process of a job that keeps it in use; 0 if none is known.
	Keeper int
}

func (u Unlisted) String() string {
	if u.VRAM == 0 {
		return ""
	}
	found := fmt.Sprintf("%d MiB of its VRAM are in use that NVML lists with no process", int64(u.VRAM))
	if u.Keeper > 0 {
		found += fmt.Sprintf(" (process %d keeps it, by /dev/nvidia-uvm)", u.Keeper)
	}
	switch {
	case u.Eaten > 0:
		return fmt.Sprintf("%s, and running jobs lack %s of their budgets: find what uses it", found, u.Eaten)
	case u.Taken > 0:
		return fmt.Sprintf("%s, so new jobs get %s less than its pool has", found, u.Taken)
	}
	return found
}

// Unlisted is that of a GPU or MIG device of the plan by the last sample. Nothing is known by a
// sample that is too old.
func (l *Loop) Unlisted(n Node, u gpu.UUID, now time.Time) (out Unlisted) {
	g, ok := n.Plan.Find(u)
	if !ok {
		return out
	}
	snap := l.Last()
	d, ok := snap.Device(Device(g))
	if !ok || now.Sub(d.At) > blindAfter*n.Config.Usage.Interval || !usage.Unlisted(d.Unlisted) {
		return out
	}
	out.VRAM, out.Keeper = d.Unlisted.Value.MiB(), l.keepers.Keeper(Device(g))
	if !g.Shared() {
		return out
	}
	reserved := budget.Reserved{Pool: g.Pool, Free: d.Memory.Value.Free}
	for _, r := range l.Jobs.Running() {
		if r.GPU == u {
			used, _ := snap.Slot(rules.SlotKey(r.Starter), Device(g)) // a job that no sample knows uses nothing yet
			reserved.Jobs = append(reserved.Jobs, budget.Part{Budget: r.Budget, Used: used.Memory.Value})
		}
	}
	out.Taken, out.Eaten = reserved.Missing()
	return out
}

func keptOn(g *plan.GPU) keepers.GPU {
	return keepers.GPU{UUID: g.UUID, Device: Device(g), Alone: g.Alone()}
}

// lookForKeepers looks for those who keep what NVML does not list. No sample waits for long.
func lookForKeepers(l *Loop, n Node, snap *usage.Snapshot) {
	var gpus []keepers.GPU
	for i := range n.Plan.GPUs {
		if g := &n.Plan.GPUs[i]; limits(g) {
			gpus = append(gpus, keptOn(g))
		}
	}
	l.keepers.Look(snap, gpus, l.Jobs.Running(), cmp.Or(l.Patience, deep.Brief))
	for _, g := range gpus {
		l.sampler.Kept(g.Device, l.keepers.May(g))
	}
}

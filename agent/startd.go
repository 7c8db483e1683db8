package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Startd is HTCondor on this machine; startd.Programs is the real one.
type Startd interface {
	startd.HTCondor
	// Version is the installed one.
	Version(ctx context.Context) (condor.Version, error)
}

// newStartds wires what asks HTCondor's startds.
func (a *Agent) newStartds() *startd.Startds {
	return startd.New(startd.Options{
		HTCondor: a.startd, Local: a.proc, Events: a.history, Log: a.log, Settle: a.settle,
		Wanted: func() startd.Wanted {
			v := a.view.Load()
			return startd.Wanted{
				Observe: v.plan.Observe, Written: v.written, Policy: v.config.HTCondor.Changes,
				Compare: v.planned && !v.plan.Observe && v.config.HTCondor.Manage &&
					a.closures.Node().Phase != closures.Reverted,
				Node: a.node(v), Overridden: v.overridden,
			}
		},
	})
}

// settle corrects the job table by the startds' ads, and says whether nothing is left open.
func (a *Agent) settle(ctx context.Context, slots []condor.Slot) (settled bool) {
	v := a.view.Load()
	truth := jobs.Ads{
		Slots: map[string]condor.Slot{},
		Wall:  a.walls(v, time.Now()),
		Budget: func(u gpu.UUID, vram int64) gpu.MiB {
			g, ok := v.plan.Find(u)
			if ok && g.Shared() && vram <= 0 && v.plan.RequestVRAM.WithoutRequest == config.WithoutRequestShare {
				return g.DefaultRequest
			}
			return gpu.MiB(vram)
		},
		Admitted: func(u gpu.UUID, uid uint32) bool {
			g, ok := v.plan.Find(u)
			return !ok || !g.Shared() || a.access.Has(u, uid)
		},
	}
	if v.plan.Observe {
		truth.Observed, truth.Began = startd.Resolver(&v.plan), usage.Began
	}
	for _, s := range slots {
		truth.Slots[condor.SlotName(s.Name)] = s
	}
	if a.jobs.Unknown() != "" {
		truth.Account = a.proc.JobAccounts(ctx, slots)
	}
	found := a.jobs.Settle(truth)
	for _, m := range found.Mismatches {
		a.log.Error("the startd's report differs from the hook's; the startd's counts",
			"slot", m.Slot, "gpu", m.GPU, "differs", m.Text)
		a.metrics.Mismatch()
	}
	if len(found.Taken) > 0 {
		a.sweepNow() // first the pipe directory, so that no new connection comes
		a.ender.TakeBack(ctx, found.Taken)
	}
	for _, s := range found.Ignored {
		a.log.Warn("a condor_starter belongs to none of the startd's slots; its GPU is not known to "+
			"gpuslot", "slot", s.Slot, "pid", s.PID)
	}
	return found.Open == 0
}

// walls says what enforces a budget on a GPU of the plan; that of a GPU that is not shared
// is the GPU itself. It looks at the GPUs' health now, and later at nothing.
func (a *Agent) walls(v *view, now time.Time) func(u gpu.UUID, budget gpu.MiB) string {
	shared := map[gpu.UUID]admission.Health{}
	for i := range v.plan.GPUs {
		if g := &v.plan.GPUs[i]; g.Shared() {
			shared[g.UUID] = a.gpus(v).Seen(g.UUID, now)
		}
	}
	return func(u gpu.UUID, budget gpu.MiB) string {
		g, ok := v.plan.Find(u)
		switch {
		case !ok:
			return jobs.WallNone
		case g.Observed():
			return "" // nothing of ours
		case g.Alone():
			return jobs.WallMIG
		case !g.Shared():
			return jobs.WallWhole
		}
		return admission.Enforcement(g.LargestRequest, budget, shared[u])
	}
}

// node is the plan in HTCondor's terms.
func (a *Agent) node(v *view) condor.Node {
	n := startd.Node(v.plan, v.config).At(v.settings)
	n.Version = a.version
	return n
}

// writeCondor writes what HTCondor reads at the start of the startd.
func (a *Agent) writeCondor(ctx context.Context, v *view) error {
	n := a.node(v)
	if names, known := v.can.Names(); known {
		n.MPS = &names
	}
	files := startd.Files{Give: a.own == 0, Rewritten: a.startds.Rewritten, Log: a.log}
	text, err := files.Write(ctx, n, v.config)
	if text != nil {
		v.generated = text
	}
	return err
}

// readSettings asks for HTCondor's configuration as the site has it. What was known
// last stays while it cannot be read.
func (a *Agent) readSettings(ctx context.Context, v *view, problem func(error)) {
	if a.settings == nil || v.condor == (condor.Version{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startd.AskTimeout)
	defer cancel()
	now, err := a.settings(ctx)
	if err != nil {
		problem(fmt.Errorf("HTCondor's configuration cannot be read, so NUM_CPUS, MEMORY and RESERVED_MEMORY are "+
			"not heeded: %w", err))
		return
	}
	v.settings = now
}

// overrides are the site's settings that take something away from what the agent
// wrote for HTCondor.
func (v *view) overrides() []condor.Override {
	if !v.written || !v.config.HTCondor.Manage || v.settings == nil {
		return nil
	}
	return condor.Overrides(v.generated, v.config.Paths.CondorConfig(), v.settings)
}

// condorVersion is HTCondor's; zero if it is not installed yet.
func (a *Agent) condorVersion(ctx context.Context, problem func(error)) condor.Version {
	ctx, cancel := context.WithTimeout(ctx, startd.AskTimeout)
	defer cancel()
	v, err := a.startd.Version(ctx)
	if err != nil {
		problem(fmt.Errorf("HTCondor's version is not known: %w", err))
	}
	return v
}

// checkCondor says why nothing may be offered to this HTCondor; empty if it may.
func checkCondor(v condor.Version, problem func(error)) string {
	if v == (condor.Version{}) {
		return ""
	}
	warning, err := condor.Check(v)
	if warning != "" {
		problem(errors.New(warning))
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

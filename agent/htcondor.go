package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// htcondor is the installed HTCondor as a round sees it: what it is, and what is written for it.
type htcondor struct {
	installed Startd
	// settings reads its configuration as the site has it; nil where it cannot be read.
	settings func(context.Context) (condor.Settings, error)
	// version is gpuslotd's, give that files may be given to other accounts.
	version string
	give    bool
	// rewritten is called after the generated configuration was replaced.
	rewritten func()
	log       *slog.Logger
}

// readVersion reads HTCondor's version; zero if it is not installed yet.
func (h *htcondor) readVersion(ctx context.Context, v *view) {
	ctx, cancel := context.WithTimeout(ctx, startd.AskTimeout)
	defer cancel()
	var err error
	if v.condor, err = h.installed.Version(ctx); err != nil {
		v.problem(fmt.Errorf("HTCondor's version is not known: %w", err))
	}
}

// readSettings asks for HTCondor's configuration as the site has it. What was known
// last stays while it cannot be read.
func (h *htcondor) readSettings(ctx context.Context, v *view) {
	if h.settings == nil || v.condor == (condor.Version{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startd.AskTimeout)
	defer cancel()
	now, err := h.settings(ctx)
	if err != nil {
		v.problem(fmt.Errorf("HTCondor's configuration cannot be read, so NUM_CPUS, MEMORY and RESERVED_MEMORY are "+
			"not heeded: %w", err))
		return
	}
	v.settings = now
}

// refused says why nothing may be offered to this HTCondor; empty if it may.
func (v *view) refused() string {
	if v.condor == (condor.Version{}) {
		return ""
	}
	warning, err := condor.Check(v.condor)
	if warning != "" {
		v.problem(errors.New(warning))
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// node is the plan in HTCondor's terms.
func (h *htcondor) node(v *view) condor.Node {
	n := startd.Node(v.plan, v.config).At(v.settings)
	n.Version = h.version
	return n
}

// write writes what HTCondor reads at the start of the startd.
func (h *htcondor) write(ctx context.Context, v *view) error {
	n := h.node(v)
	if names, known := v.can.Names(); known {
		n.MPS = &names
	}
	text, err := startd.Files{Give: h.give, Rewritten: h.rewritten, Log: h.log}.Write(ctx, n, v.config)
	if text != nil {
		v.generated = text
	}
	return err
}

// settler keeps the job table in step with the startds' ads.
type settler struct {
	node    *node
	jobs    *jobs.Table
	proc    starter.Node
	access  *access.List
	ender   *ending.Ender
	metrics *metrics.Metrics
	sweep   func()
	log     *slog.Logger
}

// settle corrects the job table by the startds' ads, and says whether nothing is left open.
func (s *settler) settle(ctx context.Context, slots []condor.Slot) (settled bool) {
	v := s.node.view.Load()
	truth := jobs.Ads{
		Slots:      map[string]condor.Slot{},
		EnforcedBy: s.node.enforcement(v, time.Now()),
		Budget: func(u gpu.UUID, vram int64) gpu.MiB {
			g, ok := v.plan.Find(u)
			if ok && g.Shared() && vram <= 0 && v.plan.RequestVRAM.WithoutRequest == config.WithoutRequestShare {
				return g.DefaultRequest
			}
			return gpu.MiB(vram)
		},
		Admitted: func(u gpu.UUID, uid uint32) bool {
			g, ok := v.plan.Find(u)
			return !ok || !g.MPS() || s.access.Has(u, uid)
		},
	}
	if v.plan.Observe {
		truth.Observed, truth.Began = startd.Resolver(&v.plan), process.Began
	}
	for _, slot := range slots {
		truth.Slots[condor.SlotName(slot.Name)] = slot
	}
	if s.jobs.Unknown() != "" {
		truth.Account = s.proc.JobAccounts(ctx, slots)
	}
	found := s.jobs.Settle(truth)
	for _, m := range found.Mismatches {
		s.log.Error("the startd's report differs from the hook's; the startd's counts",
			"slot", m.Slot, "gpu", m.GPU, "differs", m.Text)
		s.metrics.Mismatch()
	}
	if len(found.Taken) > 0 {
		s.sweep() // first the pipe directory, so that no new connection comes
		s.ender.TakeBack(ctx, found.Taken)
	}
	for _, one := range found.Ignored {
		s.log.Warn("a condor_starter belongs to none of the startd's slots; its GPU is not known to "+
			"gpuslot", "slot", one.Slot, "pid", one.PID)
	}
	return found.Open == 0
}

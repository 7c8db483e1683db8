package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// ErrAnew asks for a new process: a library of the driver that was loaded once
// stays in a process until it ends, so that a driver is let go, and another one
// taken up, only so.
var ErrAnew = errors.New("gpuslotd has to start again")

// quiescedInventory is what the node had when it was quiesced: the plan rests
// on it until it resumes.
func quiescedInventory(p config.Paths) string { return filepath.Join(p.State, "quiesced.json") }

// withoutDriver are the options of an agent that touches no GPU.
func (o Options) withoutDriver(p config.Paths) Options {
	o.Hardware, o.WaitForHardware, o.ExpectedGPUs = hardware.Recorded{Path: quiescedInventory(p)}, false, 0
	o.Usage, o.Alarms, o.CUDA, o.Cgroups, o.MemoryLimits, o.DriverMismatch = nil, nil, nil, nil, nil, nil
	o.MIG.Hardware = nil
	return o
}

// askNode carries out an operator's verb on the whole node.
func (a *Agent) askNode(req api.Request) (api.NodeStatus, error) {
	if req.Verb != api.VerbStatus {
		if err := a.view.Load().refusesObserved(); err != nil {
			return api.NodeStatus{}, err
		}
	}
	return a.quiescer.Ask(req)
}

// quiesced is the agent as closures.Quiescer sees it.
type quiesced struct{ *Agent }

// Holding asks nobody but /proc and the job table: since jobs on whole GPUs pass the hook,
// too, all are there.
func (a quiesced) Holding() (slots []string, unknown string) {
	a.sweepNow()
	return bareSlots(a.jobs.Running()), a.jobs.Unknown()
}

// bareSlots are the slots that jobs hold, in order, without a verification's.
func bareSlots(running []jobs.Job) []string {
	var out []string
	for _, r := range running {
		if r.Starter.Slot != admission.VerifySlot {
			out = append(out, fmt.Sprintf("%s (%s on %s)", r.Starter.Slot, r.AccountName(), r.GPU))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// LetGo leaves NVML, which goes with this process.
func (a quiesced) LetGo(ctx context.Context, revert bool) error {
	v := a.view.Load()
	if err := a.keeper.StopAll(ctx); err != nil {
		return err
	}
	if err := a.limits.Release(ctx); err != nil {
		a.log.Warn("limits of cgroups are left behind; they end with the driver", "err", err)
	}
	if err := a.keepInventory(ctx, v); err != nil {
		// A driver that does not answer is why a node is quiesced, at times. Compute
		// modes end with it.
		a.log.Warn("compute modes are not restored; they end with the driver", "err", err)
	}
	if revert {
		return removeGenerated(v.config)
	}
	return nil
}

// keepInventory restores compute modes and writes down what the node then has.
func (a quiesced) keepInventory(ctx context.Context, v *view) error {
	inv, _, err := a.hardware.Inventory(ctx)
	if err == nil {
		err = a.modes.Return(ctx, inv, nil)
	}
	if err == nil {
		inv, _, err = a.hardware.Inventory(ctx)
	}
	if err != nil {
		return err
	}
	return store.WriteJSON(quiescedInventory(v.config.Paths), inv)
}

// Holders are by PID, without the agent.
func (a quiesced) Holders() []api.NodeHolder { return closures.Holders(a.proc.FS) }

// Version is that of NVIDIA's driver.
func (a quiesced) Version() string { return a.view.Load().plan.Driver }

// Unready is empty after the first round.
func (a quiesced) Unready() string {
	switch v := a.view.Load(); {
	case v.closed != "":
		return v.closed
	case !v.planned || v.rounds == 0:
		return "gpuslotd makes its first round"
	}
	return ""
}

// Unwell names the first GPU that is not well.
func (a quiesced) Unwell() string {
	v, now := a.view.Load(), time.Now()
	for _, g := range toVerify(v) {
		if why := a.unwell(v, g, now); why != "" {
			return fmt.Sprintf("GPU %d: %s", g.Index, why)
		}
	}
	return ""
}

// unwell is why jobs could not run on a shared GPU, whoever closed it.
func (a quiesced) unwell(v *view, g *plan.GPU, now time.Time) string {
	return a.gpus(v).Unverified(g, now).Reason(now, v.config.Health.MaxAge)
}

// toVerify are the shared GPUs and MIG devices that are there.
func toVerify(v *view) []*plan.GPU {
	var out []*plan.GPU
	for i := range v.plan.GPUs {
		if g := &v.plan.GPUs[i]; g.Shared() && (g.Place == "" || g.Device != "") {
			out = append(out, g)
		}
	}
	return out
}

// Verify tries one GPU after the other.
func (a quiesced) Verify(ctx context.Context) ([]closures.Closure, error) {
	if a.verifier.Start == nil {
		return nil, nil
	}
	v := a.view.Load()
	var failed []closures.Closure
	for _, g := range toVerify(v) {
		found := a.resumes(ctx, v, g)
		if ctx.Err() != nil {
			return nil, errors.New("gpuslotd is ending")
		}
		if found != "" {
			failed = append(failed, closures.Closure{GPU: g.Physical(), Owner: closures.OwnerNode, Since: time.Now(),
				Reason: fmt.Sprintf("%s: mend it, then: gpuslot verify %s; gpuslot gpu open %s --override", found, g.UUID, g.UUID)})
		}
	}
	return failed, nil
}

// resumes verifies one GPU of a node that resumes; empty if it keeps its limits.
func (a quiesced) resumes(ctx context.Context, v *view, g *plan.GPU) (found string) {
	if why := a.unwell(v, g, time.Now()); why != "" {
		return "it was not well when the node resumed (" + foreign.Clip(why) + ")"
	}
	switch r := a.verifier.GPU(ctx, g.UUID); {
	case r.Skipped != "":
		return "it could not be verified when the node resumed (" + foreign.Clip(r.Skipped) + ")"
	case !r.OK:
		return "its verification after the node resumed failed (" + foreign.Clip(r.Text) + ")"
	}
	return ""
}

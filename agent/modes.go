package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/undo"
	"github.com/gpuslot/gpuslot/gpu"
)

// borrowModes gives shared GPUs the compute mode that the plan wants, before a
// control daemon opens them, and journals the old one first. It returns what
// is true of each GPU's mode, for the status.
func (a *Agent) borrowModes(ctx context.Context, path string, p plan.Plan, inv gpu.Inventory) (map[gpu.UUID]string, error) {
	u, err := undo.Read(path)
	says := map[gpu.UUID]string{}
	start := time.Now()
	held := sync.OnceValue(func() func(gpu.UUID) string { return a.heldElsewhere(ctx) })
	for _, g := range p.GPUs {
		now, _ := inv.GPU(g.UUID)
		if !g.Shared() || g.ComputeMode == "" {
			continue
		}
		switch {
		case now.ComputeMode == g.ComputeMode:
			says[g.UUID] = string(g.ComputeMode)
		case now.ComputeMode == "":
			says[g.UUID] = fmt.Sprintf("unknown, %s is wanted", g.ComputeMode)
		case err != nil:
			says[g.UUID] = fmt.Sprintf("%s, not %s: %v", now.ComputeMode, g.ComputeMode, err)
		case held()(g.UUID) != "":
			// An exclusive mode would fail the next context of a job that has
			// the whole GPU.
			says[g.UUID] = fmt.Sprintf("%s, not %s until %s", now.ComputeMode, g.ComputeMode, held()(g.UUID))
		case start.Sub(a.modeFailures[g.UUID].at) < modeRetry:
			says[g.UUID] = a.modeFailures[g.UUID].text
		default:
			says[g.UUID] = a.borrowMode(ctx, path, &u, now, g.ComputeMode)
		}
	}
	return says, err
}

// modeRetry is how long a mode that could not be set is let be, unless the
// configuration is read again.
const modeRetry = 5 * time.Minute

// modeFailure is what came of the last attempt to set a GPU's mode.
type modeFailure struct {
	at   time.Time
	text string
}

func (a *Agent) borrowMode(ctx context.Context, path string, u *undo.Journal, now gpu.GPU, want gpu.ComputeMode) string {
	not := func(err error) string {
		text := fmt.Sprintf("%s, not %s: %v", now.ComputeMode, want, err)
		a.modeFailures[now.UUID] = modeFailure{time.Now(), text}
		return text
	}
	_, noted := u.ComputeModes[now.UUID]
	if !noted {
		u.ComputeModes[now.UUID] = now.ComputeMode
		if err := u.Write(path); err != nil {
			delete(u.ComputeModes, now.UUID)
			return not(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	if err := a.hardware.SetComputeMode(ctx, now.UUID, want); err != nil {
		if noted {
			return not(err)
		}
		delete(u.ComputeModes, now.UUID) // nothing was changed
		return not(errors.Join(err, u.Write(path)))
	}
	a.log.Info("compute mode set", "gpu", now.UUID, "mode", want, "was", now.ComputeMode)
	return string(want)
}

// returnModes restores the compute modes of GPUs that are not kept shared. A
// GPU that is not there now stays in the journal.
func (a *Agent) returnModes(ctx context.Context, path string, inv gpu.Inventory, keep func(gpu.UUID) bool) error {
	u, err := undo.Read(path)
	if err != nil || len(u.ComputeModes) == 0 {
		return err
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(u.ComputeModes)) {
		if _, here := inv.GPU(id); !here || keep(id) {
			continue
		}
		if err := a.hardware.SetComputeMode(ctx, id, u.ComputeModes[id]); err != nil {
			errs = append(errs, fmt.Errorf("restore compute mode %s of %s: %w", u.ComputeModes[id], id, err))
			continue
		}
		a.log.Info("compute mode restored", "gpu", id, "mode", u.ComputeModes[id])
		delete(u.ComputeModes, id)
	}
	return errors.Join(append(errs, u.Write(path))...)
}

// heldElsewhere says of each GPU what has to end before its mode may change: a job that
// holds it without the agent's admission, by the startds' word; empty for none. Where a
// startd does not answer, or the ad of a slot cannot be read, any GPU may be held as long
// as a job runs that the agent does not know.
func (a *Agent) heldElsewhere(ctx context.Context) func(gpu.UUID) string {
	held := map[gpu.UUID]string{}
	all, err := a.startds.Slots(ctx)
	for _, one := range all {
		for _, s := range one.Slots {
			if s.Unreadable != "" && err == nil {
				err = errors.New(startd.Unreadable(s))
			}
			if s.Type == "Partitionable" || s.JobID == "" {
				continue
			}
			for _, id := range s.AssignedGPUs {
				if u, err := gpu.ParseUUID(id); err == nil && !a.jobs.Busy(u) {
					held[u] = fmt.Sprintf("the job in %s ends", s.Name)
				}
			}
		}
	}
	unknown := ""
	if err != nil {
		for _, s := range (&starter.Arrivals{}).New(a.proc, time.Now()) {
			if len(a.jobs.HeldBy(s)) == 0 {
				unknown = fmt.Sprintf("it is known which GPUs the job in %s has: %v", s.Slot, err)
				break
			}
		}
	}
	return func(u gpu.UUID) string { return cmp.Or(held[u], unknown) }
}

// nobodys keeps no GPU shared.
func nobodys(gpu.UUID) bool { return false }

// setUp says that an agent has changed this node since the last gpuslotd --release.
func setUp(p config.Paths) bool {
	for _, file := range []string{undo.File(p), startd.ClosedFile(p), p.PlanFile()} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

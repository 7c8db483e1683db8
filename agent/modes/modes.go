package modes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// Hardware sets compute modes.
type Hardware interface {
	SetComputeMode(ctx context.Context, u gpu.UUID, mode gpu.ComputeMode) error
}

// Jobs are the running jobs that the agent admitted; jobs.Table is the real one.
type Jobs interface {
	// Busy says whether one of them has a part of a GPU.
	Busy(u gpu.UUID) bool
	// HeldBy are the entries of a starter's job, one for each of its GPUs.
	HeldBy(s starter.Starter) []jobs.Job
}

// Startds are those of this node; startd.Startds are the real ones.
type Startds interface {
	Slots(ctx context.Context) ([]startd.Answer, error)
}

// Options are what Modes work with.
type Options struct {
	// File is the journal: see File.
	File     string
	Hardware Hardware
	Jobs     Jobs
	Startds  Startds
	// Node finds HTCondor's starters.
	Node starter.Node
	Log  *slog.Logger
}

// Modes are the compute modes of this node's GPUs. Its methods belong to the agent's loop.
type Modes struct {
	o Options
	// failed are the modes that could not be set.
	failed map[gpu.UUID]failure
}

// failure is what came of the last attempt to set a GPU's mode.
type failure struct {
	at   time.Time
	text string
}

// retry is how long a mode that could not be set is left alone, unless the configuration is
// read again.
const retry = 5 * time.Minute

// setTimeout bounds one change. Without persistence mode the driver initialises the GPU
// first, which takes seconds.
const setTimeout = 30 * time.Second

// New returns the modes of a node.
func New(o Options) *Modes { return &Modes{o: o, failed: map[gpu.UUID]failure{}} }

// TryAgain lets modes that could not be set be tried at once.
func (m *Modes) TryAgain() { clear(m.failed) }

// Borrow gives shared GPUs the compute mode that the plan wants, before a control daemon
// opens them, and journals the old one first. It returns what is true of each GPU's mode,
// for the status.
func (m *Modes) Borrow(ctx context.Context, p plan.Plan, inv gpu.Inventory) (map[gpu.UUID]string, error) {
	j, err := Read(m.o.File)
	says := map[gpu.UUID]string{}
	start := time.Now()
	held := sync.OnceValue(func() func(gpu.UUID) string { return m.heldElsewhere(ctx) })
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
		case start.Sub(m.failed[g.UUID].at) < retry:
			says[g.UUID] = m.failed[g.UUID].text
		default:
			says[g.UUID] = m.borrow(ctx, &j, now, g.ComputeMode)
		}
	}
	return says, err
}

func (m *Modes) borrow(ctx context.Context, j *Journal, now gpu.GPU, want gpu.ComputeMode) string {
	not := func(err error) string {
		text := fmt.Sprintf("%s, not %s: %v", now.ComputeMode, want, err)
		m.failed[now.UUID] = failure{time.Now(), text}
		return text
	}
	_, noted := j.ComputeModes[now.UUID]
	if !noted {
		j.ComputeModes[now.UUID] = now.ComputeMode
		if err := j.Write(m.o.File); err != nil {
			delete(j.ComputeModes, now.UUID)
			return not(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	if err := m.o.Hardware.SetComputeMode(ctx, now.UUID, want); err != nil {
		if noted {
			return not(err)
		}
		delete(j.ComputeModes, now.UUID) // nothing was changed
		return not(errors.Join(err, j.Write(m.o.File)))
	}
	m.o.Log.Info("compute mode set", "gpu", now.UUID, "mode", want, "was", now.ComputeMode)
	return string(want)
}

// Return restores the compute modes of GPUs that are not kept shared; a nil keep keeps none.
// A GPU that is not there now stays in the journal.
func (m *Modes) Return(ctx context.Context, inv gpu.Inventory, keep func(gpu.UUID) bool) error {
	j, err := Read(m.o.File)
	if err != nil || len(j.ComputeModes) == 0 {
		return err
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(j.ComputeModes)) {
		if _, here := inv.GPU(id); !here || keep != nil && keep(id) {
			continue
		}
		if err := m.o.Hardware.SetComputeMode(ctx, id, j.ComputeModes[id]); err != nil {
			errs = append(errs, fmt.Errorf("restore compute mode %s of %s: %w", j.ComputeModes[id], id, err))
			continue
		}
		m.o.Log.Info("compute mode restored", "gpu", id, "mode", j.ComputeModes[id])
		delete(j.ComputeModes, id)
	}
	return errors.Join(append(errs, j.Write(m.o.File))...)
}

// Restore restores all compute modes when gpuslot leaves the node. It reads the hardware only
// if there is something to restore.
func (m *Modes) Restore(ctx context.Context, read func(context.Context) (gpu.Inventory, []error, error)) error {
	j, err := Read(m.o.File)
	if err != nil || len(j.ComputeModes) == 0 {
		return err
	}
	inv, _, err := read(ctx)
	if err != nil {
		return fmt.Errorf("restore compute modes: %w", err)
	}
	if err := m.Return(ctx, inv, nil); err != nil {
		return err
	}
	left, err := Read(m.o.File)
	for u := range left.ComputeModes {
		m.o.Log.Warn("a GPU is not here; its compute mode stays noted for when it is", "gpu", u, "file", m.o.File)
	}
	return err
}

// heldElsewhere says of each GPU what has to end before its mode may change: a job that
// holds it without the agent's admission, by the startds' ads; empty for none. Where a startd
// does not answer, or the ad of a slot cannot be read, any GPU may be held as long as a job
// runs that the agent does not know.
func (m *Modes) heldElsewhere(ctx context.Context) func(gpu.UUID) string {
	held := map[gpu.UUID]string{}
	all, err := m.o.Startds.Slots(ctx)
	for _, one := range all {
		for _, s := range one.Slots {
			if s.Unreadable != "" && err == nil {
				err = errors.New(startd.Unreadable(s))
			}
			if s.Type == "Partitionable" || s.JobID == "" {
				continue
			}
			for _, id := range s.AssignedGPUs {
				if u, err := gpu.ParseUUID(id); err == nil && !m.o.Jobs.Busy(u) {
					held[u] = fmt.Sprintf("the job in %s ends", s.Name)
				}
			}
		}
	}
	unknown := ""
	if err != nil {
		starters, errStarters := (&starter.Arrivals{}).New(m.o.Node, time.Now())
		if errStarters != nil {
			unknown = fmt.Sprintf("it is known which jobs run: %v", errStarters)
		}
		for _, s := range starters {
			if len(m.o.Jobs.HeldBy(s)) == 0 {
				unknown = fmt.Sprintf("it is known which GPUs the job in %s has: %v", s.Slot, err)
				break
			}
		}
	}
	return func(u gpu.UUID) string { return cmp.Or(held[u], unknown) }
}

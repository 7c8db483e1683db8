package mig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Executor changes the layout of one GPU at a time: journalled, each step read
// back, undone if one fails. It destroys only what it made and what no process uses.
type Executor struct {
	Hardware Hardware
	// Dir is the state directory; journals lie in its folder mig.
	Dir string
	// Boot is the id of this boot (/proc/sys/kernel/random/boot_id), which no
	// instance outlives.
	Boot string
	// Proc names and finds holders.
	Proc Proc
	// Release stops gpuslot's own holders of an instance that goes, such as its
	// control daemon, and must refuse while jobs use it. Nil: there are none.
	Release func(ctx context.Context, u gpu.UUID, i gpu.Instance) error
	// Owns tells these holders apart. Nil: there are none.
	Owns func(s gpu.MIGState, pid int) bool
	// Publish makes the device nodes of a new instance. Nil: nothing to do.
	Publish func(ctx context.Context, s gpu.MIGState, i gpu.Instance) error
	// Reset resets one GPU that no process uses. Nil: a mode that waits for a reset
	// is taken back.
	Reset func(ctx context.Context, u gpu.UUID) error
	// Patience is how long IN_USE is waited for; the zero value is Patient.
	Patience Patience
	// Log may be nil.
	Log *slog.Logger
}

// Patience bounds the tries of one step: holders such as a process that ends,
// or a monitor's look, go away by themselves.
type Patience struct {
	Tries int
	// First is the wait after the first try; it doubles.
	First time.Duration
}

// Patient is three seconds in six tries.
var Patient = Patience{Tries: 6, First: 100 * time.Millisecond}

// undoLimit bounds a rollback, which the caller's context cannot end.
const undoLimit = 10 * time.Minute

// End is what a change ended in.
type End string

// Unchanged: nothing was touched. ReachedWanted and ReachedFormer: the layout
// is that one. EndDegraded: neither could be reached; Recover tries again.
const (
	Unchanged     End = "unchanged"
	ReachedWanted End = "wanted"
	ReachedFormer End = "former"
	EndDegraded   End = "degraded"
)

// Outcome is what a change did.
type Outcome struct {
	GPU gpu.UUID `json:"gpu"`
	End End      `json:"end"`
	// Steps are those that were done, undone ones included.
	Steps []Step `json:"steps,omitempty"`
	// State is the GPU afterwards, with owners; nil if it could not be read.
	State *gpu.MIGState `json:"state,omitempty"`
}

// BlockedError says who keeps a step from being done.
type BlockedError struct {
	GPU     gpu.UUID
	Step    Step
	Holders []gpu.Holder
	// Err is what the driver said; ErrInUse where it was not even asked.
	Err error
}

func (e BlockedError) Error() string {
	who := "nobody that NVML or /proc shows; DCGM and other monitors are known to do it: stop or restart them"
	if len(e.Holders) > 0 {
		who = describeHolders(e.Holders)
	}
	return fmt.Sprintf("GPU %s: %s: %v; held by %s", e.GPU, e.Step, e.Err, who)
}

func (e BlockedError) Unwrap() error { return e.Err }

// Preview is what Apply would do, without doing it: the steps, and who is in the way.
func (e Executor) Preview(ctx context.Context, u gpu.UUID, w Wanted) ([]Step, error) {
	c, err := e.open(ctx, u)
	if err != nil {
		return nil, err
	}
	steps, err := Changes(c.now, w)
	if err != nil {
		return nil, err
	}
	return steps, e.blocked(c.now, steps, e.Proc.against(ctx, c.now, steps...), nil)
}

// State reads a GPU with the owners of its instances, and names the holders.
func (e Executor) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	c, err := e.open(ctx, u)
	if err != nil {
		return gpu.MIGState{}, err
	}
	return e.Proc.named(c.now), nil
}

// Apply brings one GPU to what is wanted, or back to what it had. An error
// comes with every end but ReachedWanted and an Unchanged that is as wanted
// already. A change that an earlier process left open is ended first.
func (e Executor) Apply(ctx context.Context, u gpu.UUID, w Wanted) (Outcome, error) {
	w.Layout = gpu.NewLayout(w.Layout...)
	return e.locked(u, func() (Outcome, error) {
		c, err := e.open(ctx, u)
		if err != nil {
			return c.unread(err)
		}
		if c.journal.Change != nil {
			if out, err := c.recover(ctx); err != nil && out.End == EndDegraded {
				return out, err
			}
		}
		return c.apply(ctx, w)
	})
}

// Recover ends a change that a killed process, or one that could not undo it,
// left open. With an empty journal it does nothing.
func (e Executor) Recover(ctx context.Context, u gpu.UUID) (Outcome, error) {
	return e.locked(u, func() (Outcome, error) {
		journal, err := ReadJournal(e.Dir, u)
		if err != nil || journal.Change == nil {
			return Outcome{GPU: u, End: Unchanged}, err
		}
		c, err := e.open(ctx, u)
		if err != nil {
			return c.unread(err)
		}
		return c.recover(ctx)
	})
}

// Applied is what the GPU should have after a boot; ok is false if gpuslot
// never reached a layout on it.
func (e Executor) Applied(u gpu.UUID) (w Wanted, ok bool, err error) {
	journal, err := ReadJournal(e.Dir, u)
	if err != nil || journal.Applied == nil {
		return Wanted{}, false, err
	}
	return *journal.Applied, true, nil
}

// Forget drops what the GPU should have after a boot: its layout is no longer
// planned. Instances that are ours stay so.
func (e Executor) Forget(u gpu.UUID) error {
	_, err := e.locked(u, func() (Outcome, error) {
		journal, err := ReadJournal(e.Dir, u)
		if err != nil || journal.Applied == nil {
			return Outcome{}, err
		}
		journal.Applied = nil
		return Outcome{}, journal.write(e.Dir)
	})
	return err
}

func (e Executor) locked(u gpu.UUID, f func() (Outcome, error)) (Outcome, error) {
	unlock, err := lockGPU(e.Dir, u)
	if err != nil {
		return Outcome{GPU: u, End: Unchanged}, err
	}
	defer unlock()
	return f()
}

// open reads the journal and the hardware. With an error the change is of use to
// unread only.
func (e Executor) open(ctx context.Context, u gpu.UUID) (*change, error) {
	if e.Patience.Tries < 1 {
		e.Patience = Patient
	}
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	journal, err := ReadJournal(e.Dir, u)
	c := &change{e: e, u: u, journal: journal}
	if err != nil {
		return c, err
	}
	return c, c.look(ctx)
}

// blocked tells who uses what the steps would take away, besides these.
func (e Executor) blocked(s gpu.MIGState, steps []Step, h *held, but func(gpu.MIGState, int) bool) error {
	var errs []error
	for _, step := range steps {
		holders := slices.DeleteFunc(e.holdersAgainst(s, step, h), func(h gpu.Holder) bool {
			return but != nil && but(s, h.PID)
		})
		if len(holders) > 0 {
			errs = append(errs, BlockedError{GPU: s.UUID, Step: step, Holders: holders, Err: gpu.ErrInUse})
		}
	}
	return errors.Join(errs...)
}

// holdersAgainst are the users that a step must wait for: those that NVML lists, and those with open device nodes.
func (e Executor) holdersAgainst(s gpu.MIGState, step Step, h *held) []gpu.Holder {
	switch step.Verb {
	case Destroy:
		if i, ok := s.At(step.Place); ok {
			return e.Proc.name(unique(slices.Concat(i.Holders, h.at(i.Place))))
		}
	case EnableMode, DisableMode:
		if s.Enabled != (step.Verb == EnableMode) { // else only what is pending is taken back
			return e.Proc.users(s)
		}
	}
	return nil
}

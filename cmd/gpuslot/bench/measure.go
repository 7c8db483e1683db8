package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// NotCounted is why a run says nothing, though the benchmark goes on: a sentence
// for a person.
type NotCounted struct {
	Reason string
	// MPS says that no other run by MPS would say more.
	MPS bool
}

func (n NotCounted) Error() string { return n.Reason }

// Progress is said before each run.
type Progress struct {
	// Step is the one that begins, Done of All were before it.
	Step      Step
	Done, All int
	// Elapsed is the time since the first.
	Elapsed time.Duration
}

// Measure makes the runs of a plan one after the other and adds them to r, and
// what was not measured after all. Its error ends it: what was measured before
// stays. A context that ends is no error: the rest is then not measured, with
// the cause of the context's end as the reason.
func Measure(ctx context.Context, r *Result, steps []Step, run func(context.Context, Step) (Run, error),
	tell func(Progress)) error {
	began := time.Now()
	noMPS := ""
	for i, s := range steps {
		reason := r.hopeless(s)
		if s.Mode == MPS || s.Mode == MPSCapped {
			reason = cmp.Or(noMPS, reason)
		}
		if reason != "" {
			r.skip(s, reason)
			continue
		}
		if ctx.Err() != nil {
			r.skip(s, context.Cause(ctx).Error())
			continue
		}
		tell(Progress{Step: s, Done: i, All: len(steps), Elapsed: time.Since(began)})
		done, err := run(ctx, s)
		var not NotCounted
		switch {
		case ctx.Err() != nil:
			r.skip(s, context.Cause(ctx).Error())
		case errors.As(err, &not):
			r.skip(s, not.Reason)
			if not.MPS {
				noMPS = not.Reason
			}
		case err != nil:
			return fmt.Errorf("%s with %d copies: %w", s.Mode, s.Copies, err)
		default:
			r.Runs = append(r.Runs, done)
		}
	}
	return nil
}

// skip notes once what was not measured, unless another repeat of it was.
func (r *Result) skip(s Step, reason string) {
	for _, was := range r.Runs {
		if was.Mode == s.Mode && was.Copies == s.Copies && was.Profile == s.Profile {
			return
		}
	}
	note := Skip{Mode: s.Mode, Copies: s.Copies, Reason: reason}
	for _, was := range r.Skipped {
		if was == note || was.Mode == s.Mode && was.Copies == s.Copies && s.Repeat > 1 {
			return
		}
	}
	r.Skipped = append(r.Skipped, note)
}

// Cut is the result if it ended now: these steps are not measured, for that reason.
func (r Result) Cut(steps []Step, reason string) Result {
	r.Skipped = slices.Clone(r.Skipped)
	for _, s := range steps {
		r.skip(s, reason)
	}
	return r
}

// hopeless says why a step would tell nothing, from what was measured before.
func (r *Result) hopeless(s Step) string {
	for _, was := range r.Runs {
		if was.Mode == s.Mode && was.Copies == s.Copies && was.Profile == s.Profile && len(was.Failures()) > 0 {
			return "a copy failed in an earlier repeat"
		}
	}
	if s.Mode == Exclusive || s.Mode == MIG {
		return ""
	}
	alone, ok := Alone(r.Points())
	if ok && alone.JobVRAM != nil && *alone.JobVRAM*gpu.MiB(s.Copies) > r.Machine.GPU.Memory {
		return fmt.Sprintf("%d times the %s that one copy used alone do not fit into the %s of this GPU", s.Copies,
			*alone.JobVRAM, r.Machine.GPU.Memory)
	}
	return ""
}

package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
)

// world is one run.
type world struct {
	pool     Pool
	policy   Policy
	options  Options
	matching Matching

	shapes []*shape
	plans  []nodePlan // by group
	nodes  []node
	slots  []slot
	// busy is how much of the time a kernel runs on each GPU; see power.go.
	busy   []float64
	agenda *agenda

	runs  []run
	spare int32

	queue   queue
	follow  *follower
	source  Jobs
	pending Job
	ended   bool
	names   []string

	now float64
	// cycle is when the next negotiation is; infinite while there is nothing to do.
	cycle float64
	// freed are the slots with more room since the last cycle.
	freed []int32
	sums  sums
	parts []sharing.Part
}

// Run replays the jobs under a policy until the last one has ended. A job that no
// slot can hold is refused and counted. When the context ends, what is known so
// far is returned with the context's error and Result.Partial.
func Run(ctx context.Context, pool Pool, policy Policy, jobs Jobs, o Options) (Result, error) {
	w, err := newWorld(pool, policy, jobs, o)
	if err != nil {
		return Result{Policy: policy.Name}, err
	}
	if err := w.read(); err != nil {
		return w.result(), err
	}
	w.now = w.pending.Arrival.Seconds()
	w.sums.begin, w.sums.last = w.now, w.now
	for steps := 0; ; steps++ {
		if steps%(1<<12) == 0 {
			if err := w.breathe(ctx); err != nil {
				r := w.result()
				r.Partial = true
				return r, err
			}
		}
		more, err := w.step()
		if err != nil || !more {
			return w.result(), err
		}
	}
}

// breathe looks at the context and reports how far the run is.
func (w *world) breathe(ctx context.Context) error {
	if w.options.Progress != nil {
		w.options.Progress(Progress{At: seconds(w.now), Read: w.sums.jobs, Started: w.sums.started, Ended: w.sums.ended})
	}
	return ctx.Err()
}

// step does what comes next: ends before arrivals, arrivals before a negotiation.
func (w *world) step() (more bool, err error) {
	ends, arrives, looks := math.Inf(1), math.Inf(1), w.follow.at
	i, at, some := w.agenda.next()
	if some {
		ends = at
	}
	if !w.ended {
		arrives = w.pending.Arrival.Seconds()
	}
	next := min(ends, arrives, w.cycle, looks)
	if math.IsInf(next, 1) {
		return false, nil
	}
	w.sums.pass(next - w.now)
	w.now = max(w.now, next)
	switch next {
	case ends:
		w.sums.last = w.now
		w.end(i)
	case arrives:
		return true, w.arrive()
	case looks:
		return true, w.follow.act(w)
	default:
		w.negotiate()
	}
	return true, nil
}

// read gets the next job of the stream.
func (w *world) read() error {
	j, err := w.source.Next()
	if errors.Is(err, io.EOF) {
		w.ended = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := j.Check(); err != nil {
		return fmt.Errorf("job %d %s: %w", w.sums.jobs+1, j.Name, err)
	}
	if j.Arrival < w.pending.Arrival {
		return fmt.Errorf("job %d %s arrives at %s, before the one ahead of it (%s): sort the jobs", w.sums.jobs+1, j.Name,
			j.Arrival, w.pending.Arrival)
	}
	w.pending = j
	return nil
}

// arrive puts the job that has come into the queue.
func (w *world) arrive() error {
	j := w.pending
	number := int32(w.sums.jobs)
	w.sums.jobs++
	if w.options.Trace != nil {
		w.names = append(w.names, j.Name)
	}
	c := w.queue.class(w, j)
	if len(w.queue.classes[c].shapes) == 0 {
		w.sums.refused++
		w.tell(Refuse, number, -1)
	} else {
		w.queue.push(c, job{arrival: w.now, seconds: j.Seconds, dead: float32(j.Dead + w.matching.Start.Seconds()),
			kernel: float32(j.Kernel),
			sm:     float32(j.SM), bw: float32(j.Bandwidth), peak: int32(j.Peak), number: number, class: c})
		w.wake()
	}
	return w.read()
}

// wake plans a negotiation.
func (w *world) wake() {
	w.follow.wake(w)
	if !math.IsInf(w.cycle, 1) {
		return
	}
	every := w.matching.Interval.Seconds()
	if every == 0 {
		w.cycle = w.now
		return
	}
	w.cycle = max(w.now, math.Ceil((w.now-w.sums.begin)/every)*every+w.sums.begin)
}

// tell calls the trace.
func (w *world) tell(k EventKind, number, at int32) {
	if w.options.Trace == nil {
		return
	}
	e := Event{At: seconds(w.now), Kind: k, Job: int(number), Name: w.names[number]}
	if at >= 0 {
		e.Place = w.place(at)
	}
	w.options.Trace(e)
}

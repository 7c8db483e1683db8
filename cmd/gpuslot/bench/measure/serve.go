package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
)

const (
	// readyWait is how long a copy may take to answer its first request.
	readyWait = 10 * time.Minute
	// drainWait is how long answers are awaited after the last request.
	drainWait = 30 * time.Second
	// mostWaiting are the requests that wait at one copy: more are not sent, and have no answer.
	mostWaiting = 1000
)

// answer is a line of a copy, or that it has ended.
type answer struct {
	copy  int
	at    time.Time
	ended bool
}

// servers are copies that answer requests, one line each.
type servers struct {
	copies
	in      []io.WriteCloser
	answers chan answer
	// waiting are the requests at each copy by the time at which they came, oldest first.
	waiting [][]time.Time
}

// serve starts the copies, and sends them requests at each rate.
func (m *runner) serve(ctx context.Context, s bench.Step, rates []float64, each time.Duration) (
	_ []bench.Served, err error) {
	way, err := m.way(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, way.end(context.WithoutCancel(ctx))) }()
	ctx, cancel := context.WithCancel(ctx)
	c := &servers{answers: make(chan answer, 1<<12), waiting: make([][]time.Time, s.Copies)}
	defer func() {
		for _, in := range c.in {
			_ = in.Close()
		}
		cancel() // ends those that do not end by themselves
		c.sweep()
	}()
	if err := c.start(ctx, m, s, way.environment, c.connect(ctx)); err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	way.watch(ctx)
	var out []bench.Served
	for _, rate := range rates {
		served := bench.Served{Mode: s.Mode, Copies: s.Copies, Profile: s.Profile,
			ThreadPercentage: s.ThreadPercentage, Rate: rate}
		if err := c.load(ctx, &served, each); err != nil {
			return nil, err
		}
		if out = append(out, served); c.open() > 0 {
			break // at a higher rate these would still wait
		}
	}
	return out, way.proven(context.WithoutCancel(ctx))
}

// connect gives a copy pipes instead of its log, which keeps what it writes to stderr.
func (c *servers) connect(ctx context.Context) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		i := len(c.in)
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		c.in = append(c.in, in)
		go func() {
			lines := bufio.NewReader(out)
			for {
				_, err := lines.ReadString('\n')
				select {
				case c.answers <- answer{i, time.Now(), err != nil}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
		return nil
	}
}

// errEnded: what the command must do instead.
var errEnded = bench.NotCounted{Reason: "a copy ended: with --rate the command answers each line of its standard " +
	"input with one line, until the input ends"}

// ready sends one request to each copy, so that none is measured while it starts.
func (c *servers) ready(ctx context.Context) error {
	for i := range c.waiting {
		if err := c.send(i, time.Now()); err != nil {
			return errEnded
		}
	}
	late := time.NewTimer(readyWait)
	defer late.Stop()
	for c.open() > 0 {
		select {
		case a := <-c.answers:
			if _, err := c.took(a); err != nil {
				return err
			}
		case <-late.C:
			return bench.NotCounted{Reason: fmt.Sprintf("a copy did not answer its first request within %s", readyWait)}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// send is a request that came at a time.
func (c *servers) send(i int, came time.Time) error {
	c.waiting[i] = append(c.waiting[i], came)
	_, err := fmt.Fprintln(c.in[i], "request")
	return err
}

// took is how long the request that is answered took; an answer that belongs to none is not counted.
func (c *servers) took(a answer) (seconds float64, err error) {
	switch {
	case a.ended:
		return 0, errEnded
	case len(c.waiting[a.copy]) == 0:
		return 0, bench.NotCounted{Reason: "a copy wrote more lines than it had requests"}
	}
	came := c.waiting[a.copy][0]
	c.waiting[a.copy] = c.waiting[a.copy][1:]
	return a.at.Sub(came).Seconds(), nil
}

// open is how many requests wait, idlest the copy with the fewest of them.
func (c *servers) open() (n int) {
	for _, w := range c.waiting {
		n += len(w)
	}
	return n
}

func (c *servers) idlest() int {
	best := 0
	for i, w := range c.waiting {
		if len(w) < len(c.waiting[best]) {
			best = i
		}
	}
	return best
}

// load sends requests at random times, the same in every mode, and takes the answers. What is
// open at the end of the wait counts as not answered.
func (c *servers) load(ctx context.Context, s *bench.Served, each time.Duration) error {
	random := rand.New(rand.NewPCG(1, uint64(s.Rate*1000)))
	began := time.Now()
	next, end := time.Duration(0), time.NewTimer(each+drainWait)
	defer end.Stop()
	arrival := time.NewTimer(0)
	defer arrival.Stop()
	var took []float64
	last := began
	for next < each || c.open() > 0 {
		select {
		case <-arrival.C:
			for next < each && time.Since(began) >= next {
				s.Sent++
				if i := c.idlest(); len(c.waiting[i]) < mostWaiting {
					if err := c.send(i, began.Add(next)); err != nil {
						return errEnded
					}
				}
				next += time.Duration(random.ExpFloat64() / s.Rate * float64(time.Second))
			}
			if next < each {
				arrival.Reset(time.Until(began.Add(next)))
			}
		case a := <-c.answers:
			seconds, err := c.took(a)
			if err != nil {
				return err
			}
			took, last = append(took, seconds), a.at
		case <-end.C: // too many; those that have an answer count
			s.Seconds = time.Since(began).Seconds()
			s.Latencies(took)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.Seconds = last.Sub(began).Seconds()
	s.Latencies(took)
	return nil
}

// serveAll serves at the order's rates with each mode and number of copies once, the same
// way as bench.Measure makes its runs.
func (m *runner) serveAll(ctx context.Context, r *bench.Result, steps []bench.Step, tell func(bench.Progress)) error {
	began := time.Now()
	for i, s := range steps {
		if stopped := context.Cause(ctx); stopped != nil {
			*r = r.Cut(steps[i:], stopped.Error())
			return nil //nolint:nilerr // the result says it
		}
		tell(bench.Progress{Step: s, Done: i, All: len(steps), Elapsed: time.Since(began)})
		served, err := m.serve(ctx, s, slices.Sorted(slices.Values(m.options.Order.Rates)), m.options.Each)
		var not bench.NotCounted
		switch {
		case ctx.Err() != nil:
			*r = r.Cut(steps[i:], context.Cause(ctx).Error())
			return nil //nolint:nilerr // the result says it
		case errors.As(err, &not):
			*r = r.Cut(steps[i:i+1], not.Reason)
		case err != nil:
			return fmt.Errorf("%s with %d copies: %w", s.Mode, s.Copies, err)
		default:
			r.Served = append(r.Served, served...)
		}
	}
	return nil
}

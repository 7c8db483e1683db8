// Package measure runs copies of a command on one GPU for gpuslot bench, and measures
// what they do.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Options say what is measured.
type Options struct {
	// Socket is the agent's. GPU is an index, a UUID or the beginning of one.
	Socket, GPU string
	// Command is what the copies run, Label a name for it in tables.
	Command []string
	Label   string
	Order   bench.Order
	// Each is how long requests come at each of the order's rates.
	Each time.Duration
	// Limit ends the measuring; 0 is none. Sample is the time between two looks at
	// the GPU.
	Limit, Sample time.Duration
	// Cold runs the command without running it once before. Force measures although
	// other processes use the GPU. Simulated marks the result.
	Cold, Force, Simulated bool
	// Out is a new directory for the result and the copies' output; empty keeps none.
	Out string
}

// Run measures, and writes to progress how far it is. Interrupted, it returns what it
// has.
func Run(ctx context.Context, o Options, progress io.Writer) (bench.Result, error) {
	if err := o.Order.Check(); err != nil {
		return bench.Result{}, err
	}
	if len(o.Order.Rates) > 0 && o.Each < time.Second {
		return bench.Result{}, errors.New("--rate-time is too short; 1s is the least")
	}
	if o.Limit < 0 {
		return bench.Result{}, errors.New("--time-limit is below 0; 0 is none")
	}
	if _, err := exec.LookPath(o.Command[0]); err != nil {
		return bench.Result{}, show.Hint(err, "the command is a program on the PATH, or the path of one that may be run")
	}
	if o.Sample < 10*time.Millisecond {
		return bench.Result{}, errors.New("--sample is too short; 10ms is the least")
	}
	return o.measure(ctx, progress)
}

// measure is straight wiring: directory, GPU, plan, runs, file.
func (o Options) measure(ctx context.Context, progress io.Writer) (r bench.Result, err error) {
	dir, remove, err := o.directory()
	if err != nil {
		return r, err
	}
	defer func() { remove(err == nil) }()
	m, err := open(ctx, o, dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.close(context.WithoutCancel(ctx))) }()
	r = bench.Result{
		Schema: bench.Schema, Simulated: o.Simulated, Started: time.Now().UTC().Truncate(time.Second),
		Machine: m.machine, Command: o.Command, Label: o.Label,
	}
	ctx, cancel := o.bounded(ctx)
	defer cancel(nil)
	if len(o.Order.Rates) > 0 {
		o.Order.Repeats, o.Cold = 1, true // a request to each copy warms it up
	}
	steps, skipped := bench.Plan(o.Order, m.ground())
	r.Skipped = skipped
	tell := show.NewProgress(progress)
	defer tell.End()
	if !o.Cold && len(steps) > 0 {
		tell.Say("one run before all others, which does not count")
		if err := m.warmUp(ctx, steps[0]); err != nil {
			return r, err
		}
	}
	say := func(p bench.Progress) {
		tell.Say(p.Text(tell.Terminal))
		_ = o.keep(r.Cut(steps[p.Done:], "bench was cut off before")) // an error shows at the end
	}
	if len(o.Order.Rates) > 0 {
		err = m.serveAll(ctx, &r, steps, say)
	} else {
		err = bench.Measure(ctx, &r, steps, m.run, say)
	}
	if err != nil {
		return r, err
	}
	return r, o.keep(r)
}

var (
	errInterrupted = errors.New("bench was interrupted before")
	errTimeLimit   = errors.New("the time limit had passed (--time-limit)")
)

// bounded ends with a cause that a person understands.
func (o Options) bounded(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	bound, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(errInterrupted) })
	var timer *time.Timer
	if o.Limit > 0 {
		timer = time.AfterFunc(o.Limit, func() { cancel(errTimeLimit) })
	}
	return bound, func(cause error) {
		stop()
		if timer != nil {
			timer.Stop()
		}
		cancel(cause)
	}
}

// directory is where the copies' output goes; remove is told whether all went well.
func (o Options) directory() (dir string, remove func(well bool), err error) {
	if o.Out == "" {
		dir, err = os.MkdirTemp("", "gpuslot-bench-")
		return dir, func(bool) { _ = os.RemoveAll(dir) }, err
	}
	dir = filepath.Clean(o.Out)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", nil, err
	}
	err = os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) { // its owner may have put links into it
		err = show.Hint(fmt.Errorf("%s is there already", dir),
			"name a new directory with -o, or read the result in that one with gpuslot bench --read")
	}
	return dir, func(bool) { _ = os.Remove(dir) }, err // one with files stays
}

// keep writes the result and what is printed of it.
func (o Options) keep(r bench.Result) error {
	if o.Out == "" {
		return nil
	}
	if err := r.Write(o.Out); err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	var text strings.Builder
	if err := bench.Print(&text, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Out, "bench.txt"), []byte(text.String()), 0o644)
}

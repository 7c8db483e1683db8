package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench/measure"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// exitNoAdvice is bench's own.
const exitNoAdvice = 2

// benchFlags say what is measured.
type benchFlags struct {
	gpu       string
	copies    []int
	modes     []string
	repeats   int
	limit     time.Duration
	sample    time.Duration
	cold      bool
	force     bool
	simulated bool
	label     string
	out       string
	read      []string
	asJSON    bool
}

func benchCommand(f *flags) *cobra.Command {
	var b benchFlags
	c := &cobra.Command{
		Use:   "bench [flags] -- COMMAND [ARGUMENT…]",
		Short: "Measure what sharing a GPU gains for your own command",
		Long: `bench runs a command on one GPU in several copies: one after the other, by plain
time slicing, as MPS clients without and with a cap on their threads, and on MIG
devices where the GPU has some. It measures run time, throughput, energy, activity
and VRAM, and says which sharing mode and VRAM request suit such jobs, with the
measured reasons; what was not measured is said to be unknown.

The command should do one job's work and end, in half a minute or more. Each copy
has GPUSLOT_BENCH_COPY (from 0) and GPUSLOT_BENCH_COPIES in its environment, and
its output in a file of its own (-o). One run before all others warms caches up
and does not count, unless --cold. JOBS/h and THROUGHPUT are those of all copies
together, THROUGHPUT as a multiple of one after the other; figures in brackets
are the least and the most of the repeats. W and J/JOB are those of the GPU, not
of the machine.

bench needs the GPU for itself: where gpuslotd shares it, take the node out of
service first (gpuslot node quiesce) or name another one with --gpu. It runs a
control daemon of its own, in a directory of its own, and changes no setting of a
GPU. Interrupted, it ends what it started and prints what it has.

Exit codes: 0 measured, 1 error, 2 nothing that advice could rest on.`,
		Example: `  gpuslot bench -- python3 train.py --epochs 1
  gpuslot bench --copies 1,2,4,8 --repeats 5 -o results -- ./analysis input.root
  gpuslot bench --read results`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := b.result(c.Context(), f, args, c.ErrOrStderr())
			if err != nil {
				return err
			}
			return b.print(c.OutOrStdout(), r)
		},
	}
	b.flags(c)
	return c
}

func (b *benchFlags) flags(c *cobra.Command) {
	var all []string
	for _, m := range bench.Modes() {
		all = append(all, string(m))
	}
	s := c.Flags()
	s.StringVar(&b.gpu, "gpu", "0", "the `GPU`: an index, a UUID or the beginning of one")
	s.IntSliceVar(&b.copies, "copies", []int{1, 2, 4, 8}, "the `numbers` of copies at once")
	s.StringSliceVar(&b.modes, "modes", all, "the `modes` to measure")
	s.IntVar(&b.repeats, "repeats", 3, "the `number` of times that each point is measured")
	s.DurationVar(&b.limit, "time-limit", 0, "measure no longer than this `time`, such as 30m; what is left is not measured")
	s.DurationVar(&b.sample, "sample", 200*time.Millisecond, "the `time` between two looks at the GPU; at least 150ms for activity")
	s.BoolVar(&b.cold, "cold", false, "do not run the command once before")
	s.BoolVar(&b.force, "force", false, "measure although other processes use the GPU")
	s.BoolVar(&b.simulated, "simulated", false, "mark the result: the GPU is a simulated one")
	s.StringVar(&b.label, "label", "", "a `name` for the command in tables")
	s.StringVarP(&b.out, "output", "o", "", "keep the result and the copies' output in this new `directory`")
	s.StringArrayVar(&b.read, "read", nil, "print the result that is in this `directory` instead; may be given again, for the same GPU out of MIG mode and in it")
	s.BoolVar(&b.asJSON, "json", false, "print JSON, as in bench.json")
}

// result measures, or reads what was measured.
func (b *benchFlags) result(ctx context.Context, f *flags, command []string, progress io.Writer) (bench.Result, error) {
	if len(b.read) > 0 {
		return b.readAll(command)
	}
	if len(command) == 0 {
		return bench.Result{}, show.Hint(errors.New("there is no command to measure"), "gpuslot bench -- python3 train.py")
	}
	order := bench.Order{Copies: b.copies, Repeats: b.repeats}
	for _, m := range b.modes {
		order.Modes = append(order.Modes, bench.Mode(strings.TrimSpace(m)))
	}
	if err := order.Check(); err != nil {
		return bench.Result{}, err
	}
	if b.limit < 0 {
		return bench.Result{}, errors.New("--time-limit is below 0; 0 is none")
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return bench.Result{}, show.Hint(err, "the command is a program on the PATH, or the path of one that may be run")
	}
	if b.sample < 10*time.Millisecond {
		return bench.Result{}, errors.New("--sample is too short; 10ms is the least")
	}
	return b.measure(ctx, f, order, command, progress)
}

// readAll reads results that are there, as one.
func (b *benchFlags) readAll(command []string) (bench.Result, error) {
	if len(command) > 0 {
		return bench.Result{}, errors.New("--read prints a result that is there; it runs no command")
	}
	var all []bench.Result
	for _, path := range b.read {
		r, err := bench.Read(path)
		if err != nil {
			return bench.Result{}, err
		}
		all = append(all, r)
	}
	return bench.Join(all...)
}

// measure is straight wiring: directory, GPU, plan, runs, file.
func (b *benchFlags) measure(ctx context.Context, f *flags, order bench.Order, command []string, progress io.Writer) (r bench.Result, err error) {
	dir, remove, err := b.directory()
	if err != nil {
		return r, err
	}
	defer func() { remove(err == nil) }()
	m, err := measure.Open(ctx, measure.Options{
		Socket: f.socket, GPU: b.gpu, Command: command, Dir: dir, Sample: b.sample, Force: b.force,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Close(context.WithoutCancel(ctx))) }()
	r = bench.Result{
		Schema: bench.Schema, Simulated: b.simulated, Started: time.Now().UTC().Truncate(time.Second),
		Machine: m.Machine(), Command: command, Label: b.label,
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel(nil)
	steps, skipped := bench.Plan(order, m.Ground())
	r.Skipped = skipped
	tell := show.NewProgress(progress)
	defer tell.End()
	if !b.cold && len(steps) > 0 {
		tell.Say("one run before all others, which does not count")
		if err := m.WarmUp(ctx, steps[0]); err != nil {
			return r, err
		}
	}
	err = bench.Measure(ctx, &r, steps, m.Run, func(p bench.Progress) {
		tell.Say(p.Text(tell.Terminal))
		_ = b.keep(r.Cut(steps[p.Done:], "bench was cut off before")) // trouble tells at the end
	})
	if err != nil {
		return r, err
	}
	return r, b.keep(r)
}

var (
	errInterrupted = errors.New("bench was interrupted before")
	errTimeLimit   = errors.New("the time limit had passed (--time-limit)")
)

// bounded ends with a cause that a person understands.
func (b *benchFlags) bounded(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(errInterrupted) })
	var timer *time.Timer
	if b.limit > 0 {
		timer = time.AfterFunc(b.limit, func() { cancel(errTimeLimit) })
	}
	return out, func(cause error) {
		stop()
		if timer != nil {
			timer.Stop()
		}
		cancel(cause)
	}
}

// directory is where the copies' output goes; remove is told whether all went well.
func (b *benchFlags) directory() (dir string, remove func(well bool), err error) {
	if b.out == "" {
		dir, err = os.MkdirTemp("", "gpuslot-bench-")
		return dir, func(bool) { _ = os.RemoveAll(dir) }, err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(b.out, bench.FileName)); err == nil {
		return "", nil, show.Hint(fmt.Errorf("%s has a result already", b.out), "name a new directory with -o, or read that one with gpuslot bench --read")
	}
	return b.out, func(bool) {}, nil
}

// keep writes the result and what is printed of it.
func (b *benchFlags) keep(r bench.Result) error {
	if b.out == "" {
		return nil
	}
	if err := r.Write(b.out); err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	var text strings.Builder
	if err := bench.Print(&text, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, "bench.txt"), []byte(text.String()), 0o644)
}

func (b *benchFlags) print(w io.Writer, r bench.Result) error {
	if b.asJSON {
		text, err := r.Encode()
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	} else if err := bench.Print(w, r); err != nil {
		return err
	}
	if bench.Advise(r).Mode == "" {
		return quits{nil, exitNoAdvice}
	}
	return nil
}

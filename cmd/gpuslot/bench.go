package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench/measure"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// benchFlags say what is measured.
type benchFlags struct {
	measure.Options
	modes  []string
	read   []string
	asJSON bool
}

func benchCommand(f *flags) *cobra.Command {
	var b benchFlags
	c := &cobra.Command{
		Use:   "bench [flags] -- COMMAND [ARGUMENT…]",
		Short: "Measure what sharing a GPU gains for your own command",
		Long: `bench runs a command on one GPU in several copies: one after the other, by plain
time slicing, as MPS clients, and on MIG devices. MPS clients run without and with a
limit on their threads. It measures run time, throughput, energy, activity and VRAM. It says which
sharing mode and VRAM request suit such jobs, with the measured reasons. A value
that was not measured is unknown.

The command should do one job's work and end, in half a minute or more. Each copy
has GPUSLOT_BENCH_COPY (from 0) and GPUSLOT_BENCH_COPIES in its environment, and
its output in a file of its own (-o). One run before all others warms caches up
and does not count, unless --cold. JOBS/h and THROUGHPUT are those of all copies
together, THROUGHPUT as a multiple of one after the other; figures in brackets
are the least and the most of the repeats. W and J/JOB are those of the GPU, not
of the machine.

With --rate each copy is a server: it answers each line of its standard input with one
line, until the input ends. Requests come at random times, at each rate in turn, to
the copy with the fewest of them. bench prints the 50th, 95th and 99th percentile of
the time from a request to its answer, for each mode, number of copies and rate.

bench needs the GPU for itself: where gpuslotd shares it, take the node out of
service first (gpuslot node quiesce) or name another one with --gpu. It runs a
control daemon of its own, in a directory of its own, and changes no setting of a
GPU. Interrupted, it ends what it started and prints what it has.

Exit code 3: measured, but no advice follows from the result.`,
		Example: `  gpuslot bench -- python3 train.py --epochs 1
  gpuslot bench --copies 1,2,4,8 --repeats 5 -o results -- ./analysis input.root
  gpuslot bench --rate 5,10,20 --copies 4 -- python3 serve.py
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
	s.StringVar(&b.GPU, "gpu", "0", "the `GPU`: an index, a UUID or the beginning of one")
	s.IntSliceVar(&b.Order.Copies, "copies", []int{1, 2, 4, 8}, "the `numbers` of copies at once")
	s.StringSliceVar(&b.modes, "modes", all, "the `modes` to measure")
	s.IntVar(&b.Order.Repeats, "repeats", 3, "the `number` of times that each point is measured")
	s.Float64SliceVar(&b.Order.Rates, "rate", nil,
		"send so many `requests` a second to the copies, which answer them; may be several")
	s.DurationVar(&b.Each, "rate-time", 10*time.Second, "the `time` in which requests come, at each rate")
	s.DurationVar(&b.Limit, "time-limit", 0,
		"measure no longer than this `time`, such as 30m; what is left is not measured")
	s.DurationVar(&b.Sample, "sample", 200*time.Millisecond,
		"the `time` between two looks at the GPU; at least 150ms for activity")
	s.BoolVar(&b.Cold, "cold", false, "do not run the command once before")
	s.BoolVar(&b.Force, "force", false, "measure although other processes use the GPU")
	s.BoolVar(&b.Simulated, "simulated", false, "mark the result: the GPU is a simulated one")
	s.StringVar(&b.Label, "label", "", "a `name` for the command in tables")
	s.StringVarP(&b.Out, "output", "o", "", "keep the result and the copies' output in this new `directory`")
	s.StringArrayVar(&b.read, "read", nil, "print the result that is in this `directory` instead; "+
		"may be given again, for the same GPU out of MIG mode and in it")
	s.BoolVar(&b.asJSON, "json", false, "print JSON, as in bench.json")
}

// result measures, or reads what was measured.
func (b *benchFlags) result(ctx context.Context, f *flags, command []string, progress io.Writer) (bench.Result, error) {
	if len(b.read) > 0 {
		return b.readAll(command)
	}
	if len(command) == 0 {
		return bench.Result{}, show.Usage(show.Hint(errors.New("there is no command to measure"),
			"gpuslot bench -- python3 train.py"))
	}
	for _, m := range b.modes {
		b.Order.Modes = append(b.Order.Modes, bench.Mode(strings.TrimSpace(m)))
	}
	b.Command, b.Socket = command, f.socket
	return measure.Run(ctx, b.Options, progress)
}

// readAll reads results that are there, as one.
func (b *benchFlags) readAll(command []string) (bench.Result, error) {
	if len(command) > 0 {
		return bench.Result{}, show.Usage(errors.New("--read prints a result that is there; it runs no command"))
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
	if len(r.Served) == 0 && bench.Advise(r).Mode == "" {
		return quits{nil, exitFound}
	}
	return nil
}

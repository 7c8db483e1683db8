// Command bench measures what has to be fast and small, each figure beside its
// yardstick in one run: the machine's noise then meets both. It prints a table
// and exits non-zero if a target is missed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/bench/order"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// row is one line of the table.
type row struct {
	what, got, target string
	met               bool
}

// aim begins the target of a row that is told when it is missed, and no failure.
const aim = "aim "

// part is one of the things to measure; names on the command line choose some.
type part struct {
	name    string
	measure func(context.Context) ([]row, error)
	// alone: it needs no agents.
	alone bool
}

func run(ctx context.Context) (err error) {
	b := &bench{}
	parts := chosen([]part{{"start", b.jobStart, false}, {"storm", b.storm, false}, {"plan", build, true}, {"memory", b.resident, false}, {"seeing", b.seeing, false},
		{"held", held, false}, {"simulate", simulated, true}, {"throughput", throughput, false}}, os.Args[1:])
	if slices.ContainsFunc(parts, func(p part) bool { return !p.alone }) {
		defer func() { err = errors.Join(err, b.tearDown()) }()
		if err := b.setUp(ctx); err != nil {
			return err
		}
	}
	var rows []row
	for _, p := range parts {
		more, err := p.measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return report(rows)
}

// chosen are the parts of these names, or all; what takes many minutes only runs by
// its name.
func chosen(parts []part, only []string) []part {
	return slices.DeleteFunc(parts, func(p part) bool {
		return !slices.Contains(only, p.name) && (len(only) > 0 || p.name == "throughput")
	})
}

func report(rows []row) error {
	missed := 0
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nWHAT\tMEASURED\tTARGET\t")
	for _, r := range rows {
		verdict := "met"
		switch {
		case r.target == "":
			verdict = "" // a yardstick, or no target was set
		case !r.met && strings.HasPrefix(r.target, aim):
			verdict = "not reached"
		case !r.met:
			verdict = "MISSED"
			missed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.got, r.target, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

func median(d []time.Duration) time.Duration { return quantile(d, 0.5) }

// quantile is the smallest value that at least the share q of all does not exceed.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[max(0, min(len(s)-1, int(q*float64(len(s))+0.999999)-1))]
}

const rounds = 300

// jobStart measures what stands between HTCondor and a job.
func (b *bench) jobStart(ctx context.Context) ([]row, error) {
	progress("job start: %d starters, each with a no-op, a bash wrapper, supervise and prepare", rounds)
	noop := order.Program{Name: "noop", Args: []string{b.path("noop")}}
	supervise, asking, err := b.supervise()
	if err != nil {
		return nil, err
	}
	times := map[string][]time.Duration{}
	for range rounds { // of each starter the agent answers one hook
		o := order.Order{Rounds: 1, Programs: []order.Program{noop, b.bashWrapper(), supervise, asking, b.prepare()}}
		t, err := b.starter(ctx, 1, o)
		if err != nil {
			return nil, err
		}
		for name, d := range t {
			times[name] = append(times[name], d...)
		}
	}
	base, bash, prepare := median(times["noop"]), median(times["bash"]), median(times["prepare"])
	return []row{
		{what: "static Go no-op, median", got: base.String()},
		{what: "bash wrapper, median", got: bash.String()},
		{"prepare, process start to exit, median", fmt.Sprintf("%s = %.2f x bash wrapper", prepare, ratio(prepare, bash)), "<= 0.5 x bash wrapper", ratio(prepare, bash) <= 0.5},
		{"", fmt.Sprintf("%.2f x no-op", ratio(prepare, base)), "<= 3 x no-op", ratio(prepare, base) <= 3},
		{what: "supervise before the job's program, median", got: (median(times["supervise"]) - base).String()},
		{what: "and its question whether limits are in force", got: (median(times["asking"]) - median(times["supervise"])).String()},
	}, nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

const (
	stormSize   = 64
	stormRounds = 10
)

// storm starts 64 jobs at once, as a node does that was just filled.
func (b *bench) storm(ctx context.Context) ([]row, error) {
	progress("storm: %d rounds of %d starts at once, no-op and prepare in turn", stormRounds, stormSize)
	noop := order.Program{Name: "noop", Args: []string{b.path("noop")}}
	times := map[string][]time.Duration{}
	for range stormRounds {
		for _, p := range []order.Program{noop, b.prepare()} {
			d, err := b.atOnce(ctx, stormSize, p)
			if err != nil {
				return nil, err
			}
			times[p.Name] = append(times[p.Name], d...)
		}
	}
	base, prepare := quantile(times["noop"], 0.99), quantile(times["prepare"], 0.99)
	return []row{{fmt.Sprintf("%d at once, none refused: prepare, p99", stormSize),
		fmt.Sprintf("%s = %.1f x %d no-ops at once (%s)", prepare, ratio(prepare, base), stormSize, base), "", true}}, nil
}

// build measures plan.Build for 16 GPUs x 48 shares.
func build(context.Context) ([]row, error) {
	progress("plan.Build")
	cfg, err := config.Parse("bench", []byte(bigConfig))
	if err != nil {
		return nil, err
	}
	inv := bigInventory()
	var d []time.Duration
	for range 200 {
		begin := time.Now()
		p, err := plan.Build(cfg, inv)
		d = append(d, time.Since(begin))
		if err != nil {
			return nil, err
		}
		if len(p.GPUs) != 16 || p.GPUs[0].Shares != 48 {
			return nil, fmt.Errorf("the plan has %d GPUs with %d shares", len(p.GPUs), p.GPUs[0].Shares)
		}
	}
	m := median(d)
	return []row{{"plan.Build, 16 GPUs x 48 shares, median", m.String(), "<= 5ms", m <= 5*time.Millisecond}}, nil
}

// resident measures the agent's memory with that plan in force.
func (b *bench) resident(ctx context.Context) ([]row, error) {
	progress("agent's resident memory with 16 control daemons")
	a, err := b.agent(ctx, "big", bigConfig, bigInventory())
	if err != nil {
		return nil, err
	}
	rss, err := a.residentMiB()
	if err != nil {
		return nil, err
	}
	return []row{{"agent's resident memory, 16 GPUs x 48 shares", fmt.Sprintf("%.1f MiB", rss), "<= 40 MiB", rss <= 40}}, nil
}

const bigConfig = "[sharing]\nshares = 48\n"

func bigInventory() gpu.Inventory {
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: "590.44.01", CUDA: "13.1", // 48 clients and more per GPU
		Host: gpu.Host{Name: "bench", CPUs: 1024, Memory: 4 << 20}}
	for i := range 16 {
		inv.GPUs = append(inv.GPUs, gpu.GPU{
			UUID: gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i+1)), Index: i, Name: "NVIDIA H200",
			PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", i+1)), Memory: 143771,
			Capability: gpu.ComputeCapability{Major: 9}, MIGCapable: true,
		})
	}
	return inv
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// Command bench measures what has to be fast and small, each figure beside its
// yardstick in one run: the machine's noise then meets both. It prints each row as it is
// measured. The exit code is 1 where a target is missed, or a part was not measured.
//
//	bench          the parts that fit into ten minutes together, cut off after them
//	bench all      all parts, without a limit
//	bench PART…    these parts, without a limit
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/bench/order"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// limit is how long the parts take together that run without names.
const limit = 10 * time.Minute

// part is one of the things to measure; names on the command line choose some.
type part struct {
	name    string
	measure func(context.Context) ([]row, error)
	// agents: it needs those that bench starts. slow: it takes too long to run without
	// its name.
	agents, slow bool
}

func (b *bench) parts() []part {
	// What is cheap comes first, for who cuts it off: the last two boot nodes with HTCondor.
	parts := []part{
		// Lines of HTCondor's configuration; words and sentences of the pages.
		{name: "sizes", measure: tests("./condor", "./docs", "-v", "-run", "^(TestShort|TestEnglish|TestReadmeIsShort)$")},
		{name: "plan", measure: build},
		{name: "start", measure: b.jobStart, agents: true},
		{name: "storm", measure: b.storm, agents: true},
		{name: "memory", measure: b.resident, agents: true},
		{name: "seeing", measure: b.seeing, agents: true},
		{name: "held", measure: held},
		{name: "throughput", measure: throughput},
		{name: "reactions", slow: true, measure: tests("./test/faults", "-v", "-run", "^TestReactions$")},
		{name: "layouts", slow: true, measure: tests("./mig", "-run", "-", "-bench", "Plan", "-benchtime", "1x", "-cpu", "1")},
		{name: "advise", slow: true,
			measure: tests("./cmd/gpuslot/advise", "-run", "-", "-bench", "Million", "-benchtime", "3x")},
		{name: "compare", slow: true, measure: tests("./cmd/gpuslot/simulate/layouts", "-v", "-run", "Compare")},
		{name: "hindsight", slow: true, measure: tests("./cmd/gpuslot/simulate/layouts", "-v", "-run", "^TestHeldOut$")},
	}
	for _, r := range replays() {
		parts = append(parts, part{name: "simulate", measure: r.run, slow: true})
	}
	return parts
}

func run(ctx context.Context, names []string) (err error) {
	b := &bench{}
	parts := chosen(b.parts(), names)
	if len(names) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	var failed error
	if slices.ContainsFunc(parts, func(p part) bool { return p.agents }) {
		failed = b.setUp(ctx)
	}
	t := newTable(os.Stdout)
	for _, p := range parts {
		switch {
		case ctx.Err() != nil:
			t.left(p.name, ctx.Err())
			continue
		case p.agents && failed != nil:
			t.left(p.name, failed)
			continue
		}
		rows, err := p.measure(ctx)
		t.print(rows...)
		if err != nil {
			t.left(p.name, err)
		}
	}
	return t.verdict()
}

// chosen are the parts of these names; without names those that are not slow.
func chosen(parts []part, names []string) []part {
	if slices.Contains(names, "all") {
		return parts
	}
	return slices.DeleteFunc(parts, func(p part) bool {
		return len(names) == 0 && p.slow || len(names) > 0 && !slices.Contains(names, p.name)
	})
}

// tests measures by go test, which prints the figures itself.
func tests(args ...string) func(context.Context) ([]row, error) {
	return func(ctx context.Context) ([]row, error) {
		progress("go test %v", args)
		cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout", "30m"}, args...)...)
		cmd.Env = append([]string{"GPUSLOT_REACTIONS=3", "GPUSLOT_HELD_OUT=20"}, os.Environ()...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		// Its children end with it: it gets the signal first.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		return nil, cmd.Run()
	}
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
		{what: "bash wrapper that forks nothing, median", got: bash.String()},
		{"prepare, process start to exit, median", fmt.Sprintf("%s = %.2f x bash wrapper", prepare, ratio(prepare, bash)),
			"<= 1.5 x bash wrapper", ratio(prepare, bash) <= 1.5},
		{"", fmt.Sprintf("%.2f x no-op", ratio(prepare, base)), "<= 3 x no-op", ratio(prepare, base) <= 3},
		{what: "CPU of a no-op, of prepare, of supervise and a no-op", got: fmt.Sprintf("%s, %s, %s",
			median(times["noop"+cpuOf]), median(times["prepare"+cpuOf]), median(times["supervise"+cpuOf]))},
		{what: "supervise before the job's program, median", got: (median(times["supervise"]) - base).String()},
		{what: "and its question whether limits are in force", got: (median(times["asking"]) - median(times["supervise"])).String()},
	}, nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

const (
	stormSize   = 64
	stormRounds = 10
	// stormAim is for a machine that starts the same number of no-ops in a third of it.
	// On a slower one prepare may take stormRatio times as long as they do, as one start may.
	stormAim   = 100 * time.Millisecond
	stormRatio = 3
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
		fmt.Sprintf("%s = %.1f x %d no-ops at once (%s)", prepare, ratio(prepare, base), stormSize, base),
		fmt.Sprintf("<= %s or %d x no-ops", stormAim, stormRatio), prepare <= max(stormAim, stormRatio*base)}}, nil
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

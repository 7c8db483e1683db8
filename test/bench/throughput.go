package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// How many jobs of a second run over how many shares, and how often.
const (
	manyJobs         = 500
	throughputShares = 64
	throughputRounds = 1
)

// asSites is what most sites have: a claim serves one job after the other, and the intervals are HTCondor's
// own. A test's pool negotiates each second, and sends all its slots every 5 s: that would count for the jobs.
// Both pools have it, and tell milliseconds.
const asSites = `CLAIM_WORKLIFE = 1200
EVENT_LOG_FORMAT_OPTIONS = UTC, ISO_DATE, SUB_SECOND
NEGOTIATOR_INTERVAL = 60
UPDATE_INTERVAL = 300
POLLING_INTERVAL = 5
STARTER_INITIAL_UPDATE_INTERVAL = 8
STARTER_UPDATE_INTERVAL = 300
SHADOW_QUEUE_UPDATE_INTERVAL = 900
SCHEDD_INTERVAL = 300
MASTER_UPDATE_INTERVAL = 300
`

// plainGPUs is a pool that repeats its GPUs and does nothing about sharing.
const plainGPUs = `MACHINE_RESOURCE_INVENTORY_GPUs = /usr/local/bin/plain-gpus
NUM_CPUS = 64
MEMORY = 393216
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = true
NUM_SLOTS_TYPE_1 = 1
`

const shared = "[sharing]\nshares = 8\n[cpu_only]\ncpus = 0\nmemory = 0\n"

// throughput compares job starts per second with those of a pool with plain
// repeated GPUs and no hook, round by round.
func throughput(ctx context.Context) (rows []row, err error) {
	const what = "500 jobs of 1 s over 64 shares: starts per second, against plain repeated GPUs"
	if why := node.Available(); why != nil {
		progress("no node here: %v", why)
		return []row{{what: what, got: "not measured: " + why.Error()}}, nil
	}
	rounds := throughputRounds
	if n, err := strconv.Atoi(os.Getenv("GPUSLOT_THROUGHPUT_ROUNDS")); err == nil && n > 0 {
		rounds = n
	}
	progress("throughput: %d rounds of %d jobs on two pools in turn", rounds, manyJobs)
	inv, err := gpu.ReadInventory("docs/examples/v100s-8.json")
	if err != nil {
		return nil, err
	}
	ours, err := site.Start(ctx, site.Options{Inventory: &inv, Condor: asSites, Config: shared, Progress: os.Stderr})
	if err != nil {
		return nil, errors.Join(err, site.Unstage())
	}
	defer func() { err = errors.Join(err, ours.Stop(), site.Unstage()) }()
	plain, err := startPlain(ctx, inv)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Stop()) }()
	if err := trustSimulation(ctx, ours.Node); err != nil {
		return nil, err
	}
	if err := ours.WaitAccept(ctx, len(inv.GPUs)); err != nil {
		return nil, err
	}
	var ratios []float64
	var all, allPlain []round
	worker := len(parts()) - 1
	for i := range rounds {
		both, err := twoRounds(ctx, [2]pool{{ours.Node, "request_vram = 3500\n"}, {plain, ""}}, i%2)
		if err != nil {
			return nil, err
		}
		a, b := both[0], both[1]
		all, allPlain = append(all, a), append(allPlain, b)
		ratios = append(ratios, a.perSecond/b.perSecond)
		progress("round %d: gpuslot %.2f/s, plain %.2f/s, ratio %.3f; CPU for each job %v, plain %v", i+1, a.perSecond, b.perSecond, ratios[i], a.started(worker), b.started(worker))
	}
	slices.Sort(ratios)
	middle := ratios[len(ratios)/2]
	costs := more(all, allPlain, round.started, worker)
	return append([]row{
		{what, fmt.Sprintf("median %.2f of %d rounds, %.2f to %.2f", middle, rounds, ratios[0], ratios[len(ratios)-1]),
			">= 0.85, aim 0.93", middle >= 0.85},
		{what: "  CPU of the worker for each job in the plain pool", got: medianOf(allPlain, round.started, worker).String()},
		{"  CPU of the worker for each job more, with gpuslot", costs.String(), "<= 20ms, aim 8ms", costs <= 20*time.Millisecond},
		{what: "  CPU of the worker a second more at rest", got: more(all, allPlain, round.resting, worker).String()},
	}, cpuRows(all, allPlain)...), nil
}

// trusting keeps the simulated driver's search for dead processes and its fifty looks a second
// for events out of what is booked on gpuslotd: no job here has a process on a GPU.
const trusting = "[Service]\nEnvironment=GPUSLOT_SIM_TRUST=1\n"

func trustSimulation(ctx context.Context, n *node.Node) error {
	if err := n.WriteFile(ctx, "/etc/systemd/system/gpuslotd.service.d/trust.conf", node.File{Data: trusting}); err != nil {
		return err
	}
	_, err := n.Run(ctx, "sh", "-ec", "systemctl daemon-reload && systemctl restart gpuslotd.service")
	return err
}

// pool is a node with HTCondor, and what its jobs ask for besides a GPU.
type pool struct {
	*node.Node
	lines string
}

// twoRounds runs the jobs on both pools, one after the other. Which is first changes from
// round to round: a machine that grows busier is then no fault of either.
func twoRounds(ctx context.Context, pools [2]pool, first int) (out [2]round, err error) {
	for k := range pools {
		at := (first + k) % 2
		now, rest, err := oneRound(ctx, pools[at], pools[1-at])
		if err != nil {
			return out, err
		}
		now.rest = out[at].rest
		out[at], out[1-at].rest = now, rest
	}
	return out, nil
}

// oneRound runs the jobs on a pool. It says, too, what the other pool used in a second meanwhile.
func oneRound(ctx context.Context, p, other pool) (out round, rest []time.Duration, err error) {
	used := [2]func() ([]time.Duration, error){}
	for i, n := range []pool{p, other} {
		if used[i], err = measure(n.Node); err != nil {
			return out, nil, err
		}
	}
	begin := time.Now()
	if out.perSecond, err = startsPerSecond(ctx, p.Node, p.lines); err != nil {
		return out, nil, err
	}
	out.took = time.Since(begin)
	all, err := used[0]()
	if err != nil {
		return out, nil, err
	}
	for _, t := range all {
		out.cpu = append(out.cpu, t/manyJobs)
	}
	all, err = used[1]()
	for _, t := range all {
		rest = append(rest, time.Duration(float64(t)/out.took.Seconds()))
	}
	return out, rest, err
}

// startPlain boots the pool to compare with: the same HTCondor and GPUs, and
// nothing of gpuslot.
func startPlain(ctx context.Context, inv gpu.Inventory) (*node.Node, error) {
	var ids, ads []string
	for i, g := range inv.GPUs {
		ids = append(ids, slices.Repeat([]string{string(g.UUID)}, throughputShares/len(inv.GPUs))...)
		ads = append(ads, fmt.Sprintf(`GPU_%d=[ id="%s"; DeviceUuid="%s"; ]`, i, g.UUID, g.UUID.Bare()))
	}
	script := fmt.Sprintf("#!/bin/sh\ncat <<'END'\nDetectedGPUs=\"%s\"\n%s\nEND\n", strings.Join(ids, ", "), strings.Join(ads, "\n"))
	n, err := node.Boot(ctx, node.Options{Name: "plain", Progress: os.Stderr, Files: map[string]node.File{
		"/usr/local/bin/plain-gpus":            {Data: script, Mode: 0o755},
		"/etc/condor/config.d/50-plain.config": {Data: plainGPUs},
		"/etc/condor/config.d/90-bench.config": {Data: asSites},
	}})
	if err != nil {
		return nil, err
	}
	if err := n.StartCondor(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

const oneSecond = `executable = /bin/sleep
arguments = 1
transfer_executable = false
should_transfer_files = yes
request_gpus = 1
request_cpus = 1
request_memory = 50
request_disk = 10M
`

// startsPerSecond runs the jobs on a pool and counts from the first start to
// the last one.
func startsPerSecond(ctx context.Context, n *node.Node, lines string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cluster, err := n.Submit(ctx, "alice", oneSecond+lines+fmt.Sprintf("queue %d\n", manyJobs))
	if err != nil {
		return 0, err
	}
	err = n.Wait(ctx, "the last job's end", func() bool {
		time.Sleep(2 * time.Second) // looking costs what is measured
		out, err := n.Run(ctx, "condor_q", "-all", "-af", "ProcId")
		return err == nil && strings.TrimSpace(out.Stdout) == ""
	})
	if err != nil {
		return 0, err
	}
	log, err := n.JobLog(ctx, cluster)
	if err != nil {
		return 0, err
	}
	return rate(log)
}

// rate reads the job log's events 001, "Job executing on host".
func rate(log string) (float64, error) {
	var starts []time.Time
	for line := range strings.Lines(log) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "001" {
			continue
		}
		at, err := time.Parse("2006-01-02T15:04:05.999Z07:00", fields[2])
		if err != nil {
			at, err = time.Parse("2006-01-02 15:04:05.999", fields[2]+" "+strings.TrimSuffix(fields[3], "Z"))
		}
		if err != nil {
			return 0, fmt.Errorf("the time of a start: %w", err)
		}
		starts = append(starts, at)
	}
	if len(starts) != manyJobs {
		return 0, fmt.Errorf("%d jobs started, not %d once each", len(starts), manyJobs)
	}
	first, last := slices.MinFunc(starts, time.Time.Compare), slices.MaxFunc(starts, time.Time.Compare)
	return float64(len(starts)-1) / last.Sub(first).Seconds(), nil
}

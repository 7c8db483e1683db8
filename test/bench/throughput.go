package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
SLOT_TYPE_1_PARTITIONABLE = true
`

const oneSlot = "SLOT_TYPE_1 = 100%\nNUM_SLOTS_TYPE_1 = 1\n"

// leastHooks is what HTCondor needs for a slot of each GPU and for a program that may refuse a job before it starts.
// The program does nothing. What this pool takes more than plainGPUs, gpuslot cannot save.
const leastHooks = `SLOT_TYPE_1 = Cpus=8, Memory=49152, GPUs=8
NUM_SLOTS_TYPE_1 = 8
STARTER_DEFAULT_JOB_HOOK_KEYWORD = LEAST
LEAST_HOOK_PREPARE_JOB = /usr/local/bin/least
`

const shared = "[sharing]\nshares = 8\n[cpu_only]\ncpus = 0\nmemory = 0\n"

// throughput compares job starts per second with those of a pool with plain repeated GPUs and no hook, round by round,
// and their CPU time with that of a pool with a hook that does nothing, too.
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
	progress("throughput: %d rounds of %d jobs on three pools in turn", rounds, manyJobs)
	inv, err := gpu.ReadInventory("docs/examples/v100s-8.json")
	if err != nil {
		return nil, err
	}
	ours, err := site.Start(ctx, site.Options{Inventory: &inv, Condor: asSites, Config: shared, Progress: os.Stderr})
	if err != nil {
		return nil, errors.Join(err, site.Unstage())
	}
	defer func() { err = errors.Join(err, ours.Stop(), site.Unstage()) }()
	plain, err := startPlain(ctx, inv, "plain", oneSlot)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Stop()) }()
	least, err := startPlain(ctx, inv, "least", leastHooks)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, least.Stop()) }()
	if err := trustSimulation(ctx, ours.Node); err != nil {
		return nil, err
	}
	if err := ours.WaitAccept(ctx, len(inv.GPUs)); err != nil {
		return nil, err
	}
	pools := []pool{{ours.Node, "request_vram = 3500\n"}, {plain, ""}, {least, ""}}
	all := make([][]round, len(pools)) // as pools
	var ratios []float64
	worker := len(parts()) - 1
	for i := range rounds {
		now, err := eachOnce(ctx, pools, i)
		if err != nil {
			return nil, err
		}
		for k := range pools {
			all[k] = append(all[k], now[k])
		}
		ratios = append(ratios, now[0].perSecond/now[1].perSecond)
		progress("round %d: gpuslot %.2f/s, plain %.2f/s, ratio %.3f; CPU for each job %v, plain %v, least %v", i+1,
			now[0].perSecond, now[1].perSecond, ratios[i], now[0].started(worker), now[1].started(worker), now[2].started(worker))
	}
	compareShadows(all)
	slices.Sort(ratios)
	middle := ratios[len(ratios)/2]
	costs := more(all[0], all[1], round.started, worker)
	return append([]row{
		{what, fmt.Sprintf("median %.2f of %d rounds, %.2f to %.2f", middle, rounds, ratios[0], ratios[len(ratios)-1]),
			">= 0.85, aim 0.93", middle >= 0.85},
		{what: "  CPU of the worker for each job in the plain pool", got: medianOf(all[1], round.started, worker).String()},
		{"  CPU of the worker for each job more, with gpuslot", costs.String(), "<= 20ms, aim 8ms", costs <= 20*time.Millisecond},
		{what: "    of it HTCondor's, with an empty hook and a slot a GPU", got: more(all[2], all[1], round.started, worker).String()},
		{what: "    of it gpuslot's", got: more(all[0], all[2], round.started, worker).String()},
		{what: "  CPU of the worker a second more at rest", got: more(all[0], all[1], round.resting, worker).String()},
	}, cpuRows(all[0], all[1], all[2])...), nil
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

// eachOnce runs the jobs on all pools, one after the other. Which is first changes from
// round to round: a machine that grows busier is then no fault of any.
func eachOnce(ctx context.Context, pools []pool, first int) ([]round, error) {
	out := make([]round, len(pools))
	for k := range pools {
		at := (first + k) % len(pools)
		if err := oneRound(ctx, pools, out, at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// oneRound runs the jobs on a pool. What the others use in a second meanwhile is a share of their time at rest.
func oneRound(ctx context.Context, pools []pool, out []round, at int) (err error) {
	used := make([]func() ([]time.Duration, error), len(pools))
	for i, p := range pools {
		if used[i], err = measure(p.Node); err != nil {
			return err
		}
	}
	begin := time.Now()
	if out[at].perSecond, err = startsPerSecond(ctx, pools[at].Node, pools[at].lines); err != nil {
		return err
	}
	out[at].took = time.Since(begin)
	for i := range pools {
		all, err := used[i]()
		if err != nil {
			return err
		}
		r := &out[i]
		if r.rest == nil {
			r.rest = make([]time.Duration, len(all))
		}
		for k, t := range all {
			if i == at {
				r.cpu = append(r.cpu, t/manyJobs)
			} else {
				r.rest[k] += time.Duration(float64(t)/out[at].took.Seconds()) / time.Duration(len(pools)-1)
			}
		}
	}
	return nil
}

// startPlain boots a pool to compare with: the same HTCondor and GPUs, and
// nothing of gpuslot.
func startPlain(ctx context.Context, inv gpu.Inventory, name, slots string) (*node.Node, error) {
	var ids, ads []string
	for i, g := range inv.GPUs {
		ids = append(ids, slices.Repeat([]string{string(g.UUID)}, throughputShares/len(inv.GPUs))...)
		ads = append(ads, fmt.Sprintf(`GPU_%d=[ id="%s"; DeviceUuid="%s"; ]`, i, g.UUID, g.UUID.Bare()))
	}
	script := fmt.Sprintf("#!/bin/sh\ncat <<'END'\nDetectedGPUs=\"%s\"\n%s\nEND\n", strings.Join(ids, ", "), strings.Join(ads, "\n"))
	empty, err := emptyHook(ctx)
	if err != nil {
		return nil, err
	}
	n, err := node.Boot(ctx, node.Options{Name: name, Progress: os.Stderr, Files: map[string]node.File{
		"/usr/local/bin/plain-gpus":            {Data: script, Mode: 0o755},
		"/usr/local/bin/least":                 {Data: empty, Mode: 0o755},
		"/etc/condor/config.d/50-plain.config": {Data: plainGPUs + slots},
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

// emptyHook is a hook that lets each job start: a static program in C, as gpuslot's is.
func emptyHook(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "gpuslot-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "least")
	cc := exec.CommandContext(ctx, "gcc", "-Os", "-static", "-s", "-x", "c", "-o", program, "-")
	cc.Stdin = strings.NewReader("#include <unistd.h>\nint main(void) { char ad[65536]; while (read(0, ad, sizeof ad) > 0); return 0; }\n")
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the empty hook: %w: %s", err, out)
	}
	text, err := os.ReadFile(program)
	return string(text), err
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

package scenes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// growthConfig tries jobs that met their limit again.
const growthConfig = `[growth]
retries = 3
exit_codes = [85]
early_percent = 97

[budgets]
grace = "1s"
`

// The jobs: one says by its exit code that CUDA had no memory left, one does not;
// two processes together are over a budget that each is within; one comes near it.
// The last two end when their budget has grown. One fails as soon as its starter
// knows its VRAM, which the starter reports at the job's end.
var (
	sayingJob = program{"saying.sh", "#!/bin/sh\nsimjob \"$@\" && exit 0\nexit 85\n"}
	silentJob = program{"silent.sh", "#!/bin/sh\nexec simjob \"$@\"\n"}
	seenJob   = program{"seen.sh", "#!/bin/sh\nsimjob alloc 3500 sleep 900s & until grep -q 'VRAMUsage = 3[78]' " +
		"$_CONDOR_SCRATCH_DIR/../htcondor/.update.ad; do sleep 0.2; done\nkill $!; wait $!; exec simjob alloc 3500 alloc 2000\n"}
	pairJob = program{"pair.sh", "#!/bin/bash\n" + untilGrown + "simjob alloc 3000 sleep $t & a=$!\nsimjob alloc 3000 sleep $t & b=$!\nwait $a && wait $b\n"}
	nearJob = program{"near.sh", "#!/bin/sh\n" + untilGrown + "exec simjob alloc 3000 sleep 3s alloc 760 sleep $t\n"}
)

const untilGrown = "t=1s; [ $GPUSLOT_VRAM_MIB -gt 4096 ] || t=900s\n"

// grown is a job that meets its limit, and what is to become of it.
type grown struct {
	what    string
	program program
	words   string
	lines   []string
	state   int
	vram    string // provisioned at last
	exit    string
	// held, released and evicted count the events.
	held, released, evicted int
	says                    string // in the event log
}

// onV100S: how near its limit a job comes depends on its context, which is larger on the H100.
const onV100S = "require_gpus = Capability < 8"

var growthJobs = []grown{
	{what: "needs 6 GiB, asks for 4, says so by its exit code", program: sayingJob, words: "alloc 6000", lines: []string{"request_vram = 4000"},
		state: completed, vram: "8192", exit: "0"},
	{what: "needs 12 GiB, asks for 4", program: sayingJob, words: "alloc 12000", lines: []string{"request_vram = 4000"},
		state: completed, vram: "16384", exit: "0"},
	{what: "needs 6 GiB, asks for 4, fails after a sample near the limit", program: seenJob, lines: []string{"request_vram = 4000", onV100S},
		state: completed, vram: "8192", exit: "0"},
	{what: "fails far from its limit", program: silentJob, words: "alloc 1000 sleep 4s alloc 6000", lines: []string{"request_vram = 4000"},
		state: completed, vram: "4096", exit: "1"},
	{what: "needs more than any card has", program: sayingJob, words: "alloc 200000", lines: []string{"request_vram = 60000"},
		state: completed, vram: "largest", exit: "85"},
	{what: "may grow once", program: sayingJob, words: "alloc 200000", lines: []string{"request_vram = 2000", "+MaxRequestVRAM = 4096"},
		state: completed, vram: "4096", exit: "85"},
	{what: "may not grow", program: sayingJob, words: "alloc 200000", lines: []string{"request_vram = 2000", "+MaxRequestVRAM = 0"},
		state: completed, vram: "2048", exit: "85"},
	{what: "is over its budget", program: pairJob, lines: []string{"request_vram = 4000"},
		state: completed, vram: "8192", exit: "0", evicted: 1, says: "Code 21 Subcode 76"},
	{what: "comes near its limit", program: nearJob, lines: []string{"request_vram = 4000", onV100S},
		state: completed, vram: "8192", exit: "0", evicted: 1, says: "MiB of 4096 MiB requested, which is near its limit: it runs again with a larger request_vram"},
}

// Jobs that meet the limit of their VRAM run again with a larger request, by
// themselves, up to the card and no oftener than the site and they want.
func TestGrowth(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, mixedNode)
	st := newStage(t, 1, site.Options{Leg: site.Sim, Inventory: &inv, Config: growthConfig, Condor: "PERIODIC_EXPR_INTERVAL = 2\n"})
	must(t, st.WaitAccept(ctx, len(inv.GPUs)))
	s, err := st.Status(ctx)
	must(t, err)
	largest := gpu.MiB(0)
	for _, g := range s.GPUs {
		largest = max(largest, gpu.MiB(g.PoolMiB))
	}
	clusters := make([]int, len(growthJobs))
	for i, g := range growthJobs {
		clusters[i], err = st.submit(ctx, g.job())
		must(t, err)
	}
	for i, g := range growthJobs {
		g.vram = strings.Replace(g.vram, "largest", fmt.Sprint(int64(largest)), 1)
		must(t, st.checkGrown(ctx, clusters[i], g))
	}
	must(t, st.checkOlderAccessPoint(ctx))
	done(t, st)
}

func (g grown) job() job {
	return job{Program: g.program, Arguments: g.words, Lines: append([]string{"request_gpus = 1"}, g.lines...)}
}

// checkGrown waits for the job's end, or for the hold that nothing lifts.
func (st *Stage) checkGrown(ctx context.Context, cluster int, g grown) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	var log string
	err := st.Wait(ctx, fmt.Sprintf("job %d, which %s, to come to rest", cluster, g.what), func() bool {
		rows, err := st.JobAttrs(ctx, cluster, "JobStatus")
		return err == nil && len(rows) == 1 && rows[0][0] == fmt.Sprint(g.state)
	})
	if err != nil {
		return err
	}
	if g.state == held {
		time.Sleep(3 * time.Second) // longer than PERIODIC_EXPR_INTERVAL: it must stay so
	}
	rows, err := st.JobAttrs(ctx, cluster, "JobStatus", "VRAMProvisioned", "ExitCode")
	if err != nil {
		return err
	}
	if log, err = st.JobLog(ctx, cluster); err != nil {
		return err
	}
	events := []int{strings.Count(log, "Job was held."), strings.Count(log, "Job was released."), strings.Count(log, "Job was evicted.")}
	st.Check(rows[0][0] == fmt.Sprint(g.state) && rows[0][1] == g.vram && (g.exit == "" || rows[0][2] == g.exit),
		"a job that %s: state %s, %s MiB at last, exit code %s", g.what, rows[0][0], rows[0][1], rows[0][2])
	st.Check(events[0] == g.held && events[1] == g.released && events[2] == g.evicted, "held, released, evicted: %v", events)
	if g.says != "" {
		st.Contains(log, g.says, "its event log")
	}
	return nil
}

// checkOlderAccessPoint: before 25.2.1 no job grows. One over its budget is held.
func (st *Stage) checkOlderAccessPoint(ctx context.Context) error {
	const file = "/etc/condor/config.d/60-gpuslot-access-point.config"
	text, err := st.ReadFile(ctx, file)
	if err != nil {
		return err
	}
	older := strings.Replace(text, "if version >= 25.2.1\n", "if version >= 999.0.0\n", 1)
	st.Check(older != text, "growth is for 25.2.1 on")
	if err := st.WriteFile(ctx, file, node.File{Data: older}); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "condor_reconfig"); err != nil {
		return err
	}
	g := grown{what: "is over its budget, by an older access point", program: pairJob, lines: []string{"request_vram = 4000"},
		state: held, vram: "4096", held: 1, evicted: 1, says: "Code 21 Subcode 76"}
	cluster, err := st.submit(ctx, g.job())
	if err != nil {
		return err
	}
	return st.checkGrown(ctx, cluster, g)
}

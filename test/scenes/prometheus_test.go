package scenes

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/pictures"
	"github.com/gpuslot/gpuslot/test/site"
)

// prometheusConfig scrapes the agent as often as it samples.
const prometheusConfig = `global: {scrape_interval: 1s}
scrape_configs: [{job_name: gpuslot, static_configs: [{targets: ["127.0.0.1:9847"]}]}]
`

// slack is one sampling interval and one scrape interval, in seconds.
const slack = 2.0

// sharer is one of eight jobs at a time on one GPU.
type sharer struct {
	alloc gpu.MiB
	load  int // percent of the GPU
	// proc, what HTCondor's history says of it, and its truth.
	proc       int
	slot       string
	begin, end float64
	vram       float64
	time       [3]float64 // estimate and bounds
	energy     float64
}

const loadSeconds = 8

// gpuSeconds is the truth.
func (s sharer) gpuSeconds() float64 { return float64(s.load) / 100 * loadSeconds }

// The numbers of each job in HTCondor's history are its own, where eight share a
// GPU and slots and claims are reused, and agree with what a Prometheus makes of
// the metrics.
func TestUsageAgreesWithPrometheus(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, mixedNode)
	programs := filepath.Join(pictures.Fetch(t, "prometheus"), "usr/bin")
	inv.GPUs = inv.GPUs[2:]
	inv.GPUs[0].Index = 0
	st := newStage(t, 1, site.Options{Leg: site.Sim, Inventory: &inv, Condor: "CLAIM_WORKLIFE = 1200\n", Binds: []node.Bind{
		{Host: programs + "/prometheus", Guest: "/usr/local/bin/prometheus"}, {Host: programs + "/promtool", Guest: "/usr/local/bin/promtool"}}})
	must(t, st.WriteFile(ctx, "/etc/prometheus.yml", node.File{Data: prometheusConfig}))
	_, err := st.Run(ctx, "systemd-run", "--unit=prometheus", "prometheus", "--config.file=/etc/prometheus.yml", "--storage.tsdb.path=/run/prometheus", "--web.listen-address=127.0.0.1:9090")
	must(t, err)
	must(t, st.WaitAccept(ctx, 1))

	jobs := make([]sharer, 16) // eight at a time
	items := make([]string, len(jobs))
	for i := range jobs {
		jobs[i] = sharer{proc: i, alloc: gpu.MiB(600 + 100*i), load: 2 + i%8 + i/8}
		items[i] = fmt.Sprintf("%d %d", jobs[i].alloc, jobs[i].load)
	}
	cluster, err := st.submit(ctx, job{
		Program: silentJob, Arguments: fmt.Sprintf("alloc $(mib) load $(percent) %ds sleep 6s", loadSeconds),
		Lines: vram(4000),
		Queue: "queue mib, percent from (\n" + strings.Join(items, "\n") + "\n)",
	})
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, completed))
	time.Sleep(time.Duration(slack) * time.Second) // for the last scrape
	reused := map[string]int{}
	for _, j := range jobs {
		must(t, st.history(ctx, cluster, &j))
		reused[j.slot]++
		must(t, st.checkSharer(ctx, j))
	}
	st.Check(len(reused) == 8, "16 jobs had %d slots", len(reused))
	done(t, st)
}

// history reads what condor_history says of a job.
func (st *Stage) history(ctx context.Context, cluster int, j *sharer) error {
	out, err := st.Run(ctx, "condor_history", fmt.Sprintf("%d.%d", cluster, j.proc), "-limit", "1", "-af", "LastRemoteHost",
		"JobCurrentStartExecutingDate", "CompletionDate", "VRAMUsage", "GPUTimeUsage", "GPUTimeMinUsage", "GPUTimeMaxUsage", "GPUEnergyUsage")
	if err != nil {
		return err
	}
	fields := strings.Fields(out.Stdout)
	if len(fields) != 8 {
		return fmt.Errorf("condor_history of %d.%d: %q", cluster, j.proc, out.Stdout)
	}
	j.slot, _, _ = strings.Cut(fields[0], "@")
	for i, into := range []*float64{&j.begin, &j.end, &j.vram, &j.time[0], &j.time[1], &j.time[2], &j.energy} {
		if *into, err = strconv.ParseFloat(fields[i+1], 64); err != nil {
			return fmt.Errorf("condor_history of %d.%d: %q: %w", cluster, j.proc, out.Stdout, err)
		}
	}
	return nil
}

// checkSharer holds a job's history to the truth and to Prometheus.
func (st *Stage) checkSharer(ctx context.Context, j sharer) error {
	const cuda = 518 // MiB of a simulated H100's CUDA context
	st.Check(j.vram == float64(j.alloc)+cuda, "%d in %s: VRAMUsage = %.0f, its own %d and a context", j.proc, j.slot, j.vram, j.alloc)
	st.Check(j.time[1] <= j.gpuSeconds()+0.3 && j.gpuSeconds()-0.3 <= j.time[2] && j.time[1] <= j.time[0] && j.time[0] <= j.time[2],
		"GPUTimeUsage = %.2f from %.2f to %.2f, the truth is %.2f", j.time[0], j.time[1], j.time[2], j.gpuSeconds())
	seconds, err := st.increase(ctx, "gpuslot_slot_sm_seconds_total", j)
	if err != nil {
		return err
	}
	// In so much time the whole GPU does no more than the job's part of it.
	st.Check(math.Abs(seconds-j.time[0]) <= slack*float64(j.load)/100+0.05, "Prometheus: %.2f GPU-seconds", seconds)
	joules, err := st.increase(ctx, "gpuslot_slot_energy_joules_total", j)
	if err != nil {
		return err
	}
	watts := joules / (j.end - j.begin)
	st.Check(math.Abs(joules-j.energy) <= slack*watts, "GPUEnergyUsage = %.0f, Prometheus: %.0f J", j.energy, joules)
	peak, err := st.samples(ctx, "gpuslot_slot_memory_peak_bytes", j)
	if err != nil {
		return err
	}
	most := 0.0
	for _, s := range peak {
		if s.at > j.begin+slack && s.at < j.end-slack {
			most = max(most, s.value)
		}
	}
	st.Check(most/(1<<20) == j.vram, "Prometheus: a peak of %.0f MiB", most/(1<<20))
	return nil
}

// increase is what a counter of the job's slot grew by while it ran.
func (st *Stage) increase(ctx context.Context, metric string, j sharer) (float64, error) {
	samples, err := st.samples(ctx, metric, j)
	before, after := 0.0, 0.0
	for _, s := range samples {
		if s.at <= j.begin {
			before = s.value
		}
		if s.at <= j.end {
			after = s.value
		}
	}
	return after - before, err
}

// sample is one value that Prometheus scraped.
type sample struct{ at, value float64 }

// samples are the scraped values of a metric of the job's slot.
func (st *Stage) samples(ctx context.Context, metric string, j sharer) ([]sample, error) {
	out, err := st.Run(ctx, "promtool", "query", "instant", "-o", "json", "http://127.0.0.1:9090", fmt.Sprintf("%s{slot=%q}[10m]", metric, j.slot))
	if err != nil {
		return nil, err
	}
	var series []struct{ Values [][2]any }
	if err := json.Unmarshal([]byte(out.Stdout), &series); err != nil {
		return nil, fmt.Errorf("promtool: %w: %s", err, oneLine(out.Stdout))
	}
	if len(series) != 1 {
		return nil, fmt.Errorf("Prometheus has %d series of %s for %s", len(series), metric, j.slot)
	}
	var all []sample
	for _, v := range series[0].Values {
		at, isNumber := v[0].(float64)
		text, _ := v[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !isNumber {
			return nil, fmt.Errorf("promtool: %v", v)
		}
		all = append(all, sample{at, value})
	}
	return all, nil
}

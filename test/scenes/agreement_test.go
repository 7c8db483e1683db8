package scenes

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// The bounds within which a simulation agrees with a real pool; docs/simulate.md.
const (
	leastTau     = 0.85
	mostApart    = 0.30
	mostMakespan = 0.20
)

// shortJob is one of the jobs.
type shortJob struct {
	vram    gpu.MiB
	seconds int
}

// shortJobs are 500 jobs of mixed sizes and run times, in an order that no size
// favours: one of the largest fits a V100S beside a few others, eight of the smallest do.
func shortJobs() []shortJob {
	sizes := []shortJob{{2048, 5}, {4096, 4}, {2048, 7}, {8192, 5}, {3072, 3}, {16384, 3}, {4096, 6}}
	out := make([]shortJob, 500)
	state := uint32(1)
	for i := range out {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator: the same on every machine
		out[i] = sizes[state>>16%uint32(len(sizes))]
	}
	return out
}

// span is when a job was executing, in seconds since the first one was.
type span struct{ begin, end float64 }

// agreementCondor is a pool without memory of the jobs before, which tells milliseconds.
const agreementCondor = "CLAIM_WORKLIFE = 0\nEVENT_LOG_FORMAT_OPTIONS = UTC, ISO_DATE, SUB_SECOND\n"

const agreementConfig = "[sharing]\nshares = 8\n[cpu_only]\ncpus = 0\nmemory = 0\n"

// Five hundred short jobs of mixed sizes start on a real pool in the order, and run
// in the numbers, that the simulation says of the same pool and the same jobs. The
// one number it is given is what a job's start and end take here, by another run.
func TestSimulationAgreesWithAPool(t *testing.T) {
	if os.Getenv("GPUSLOT_CAMPAIGN") == "" {
		t.Skip("takes minutes: GPUSLOT_CAMPAIGN=1, or make campaign")
	}
	ctx := t.Context()
	st := newStage(t, 4, site.Options{Config: agreementConfig, Condor: agreementCondor})
	must(t, st.WaitAccept(ctx, 4))
	text, err := st.Run(ctx, "gpuslot", "condor-config", "--for", "negotiator", "--placement", "spread")
	must(t, err)
	must(t, st.WriteFile(ctx, "/etc/condor/config.d/70-placement", node.File{Data: text.Stdout}))
	_, err = st.Run(ctx, "condor_reconfig")
	must(t, err)

	overhead, err := st.overhead(ctx)
	must(t, err)
	jobs := shortJobs()
	real, err := st.runShort(ctx, jobs)
	must(t, err)
	simulated, err := replay(ctx, st.Inventory, jobs, real, overhead)
	must(t, err)

	tau, apart := kendall(real, simulated), apartness(real, simulated)
	makespan := lastEnd(real)/lastEnd(simulated) - 1
	t.Logf("a start and an end take %.2f s; the pool ran %.1f s, the simulation %.1f s; order tau %.3f, most displaced by %d of %d; numbers at once differ by %.3f of the whole, at most %d against %d",
		overhead, lastEnd(real), lastEnd(simulated), tau, displacement(real, simulated), len(jobs), apart, atOnce(real), atOnce(simulated))
	st.Check(tau >= leastTau, "start order: Kendall's tau is %.3f, at least %.2f", tau, leastTau)
	st.Check(apart <= mostApart, "jobs at once: %.3f of the jobs' time apart, at most %.2f", apart, mostApart)
	st.Check(math.Abs(makespan) <= mostMakespan, "the whole: %.3f longer than simulated, at most %.2f", makespan, mostMakespan)
	// A simulation of another pool must not agree: three GPUs in the place of four.
	other := st.Inventory
	other.GPUs = other.GPUs[:3]
	wrong, err := replay(ctx, other, jobs, real, overhead)
	must(t, err)
	st.Check(apartness(real, wrong) > mostApart, "of a smaller pool it is %.3f apart", apartness(real, wrong))
	done(t, st)
}

// overhead is what a job's slot is held longer than the job runs, without the mean
// wait for a negotiation: jobs of one size, of which each GPU holds four, keep the
// pool full.
func (st *Stage) overhead(ctx context.Context) (float64, error) {
	const count, slots, seconds = 112, 16, 5
	jobs := make([]shortJob, count)
	for i := range jobs {
		jobs[i] = shortJob{7680, seconds - 2 + i%5} // so that they do not end together
	}
	spans, err := st.runShort(ctx, jobs)
	if err != nil {
		return 0, err
	}
	starts, ran := make([]float64, count), 0.0
	for i, s := range spans {
		starts[i] = s.begin
		ran += (s.end - s.begin) / count
	}
	slices.Sort(starts)
	const rounds = float64(count-slots) / slots
	return (starts[count-1]-starts[slots-1])/rounds - ran - cycle/2., nil
}

// runShort submits the jobs at once and returns when each was executing. Their
// priorities are their order: among equals HTCondor matches size by size.
func (st *Stage) runShort(ctx context.Context, jobs []shortJob) ([]span, error) {
	var list strings.Builder
	for _, j := range jobs {
		fmt.Fprintf(&list, "%d %d\n", int64(j.vram), j.seconds)
	}
	cluster, err := st.Submit(ctx, user, "executable = /bin/sleep\narguments = $(seconds)\ntransfer_executable = false\nshould_transfer_files = yes\n"+
		"priority = -$(Process)\nrequest_gpus = 1\nrequest_cpus = 1\nrequest_memory = 50\nrequest_disk = 10M\nrequest_vram = $(vram)\nqueue vram, seconds from (\n"+list.String()+")\n")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	err = st.Wait(ctx, "the last job's end", func() bool {
		time.Sleep(2 * time.Second) // looking costs what is measured
		out, err := st.Run(ctx, "condor_q", "-all", "-af", "ProcId")
		return err == nil && strings.TrimSpace(out.Stdout) == ""
	})
	if err != nil {
		return nil, err
	}
	log, err := st.JobLog(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return spansIn(log, len(jobs))
}

// spansIn reads the events 001, "Job executing on host", and 005, "Job terminated".
func spansIn(log string, count int) ([]span, error) {
	begins, ends := make([]time.Time, count), make([]time.Time, count)
	for line := range strings.Lines(log) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "001" && fields[0] != "005" {
			continue
		}
		parts := strings.Split(strings.Trim(fields[1], "()"), ".")
		proc, err := strconv.Atoi(parts[min(1, len(parts)-1)])
		at, errTime := eventTime(fields)
		if err != nil || errTime != nil || proc >= count {
			return nil, fmt.Errorf("an event's job or time: %q: %w", line, cmp.Or(err, errTime))
		}
		if fields[0] == "001" {
			if !begins[proc].IsZero() {
				return nil, fmt.Errorf("job %d started twice", proc)
			}
			begins[proc] = at
			continue
		}
		ends[proc] = at
	}
	first := slices.MinFunc(begins, time.Time.Compare)
	out := make([]span, count)
	for i := range out {
		if begins[i].IsZero() || ends[i].Before(begins[i]) {
			return nil, fmt.Errorf("job %d has no start or no end in the log", i)
		}
		out[i] = span{begins[i].Sub(first).Seconds(), ends[i].Sub(first).Seconds()}
	}
	return out, nil
}

func eventTime(fields []string) (time.Time, error) {
	at, err := time.Parse("2006-01-02T15:04:05.999Z07:00", fields[2])
	if err == nil {
		return at, nil
	}
	return time.Parse("2006-01-02 15:04:05.999", fields[2]+" "+strings.TrimSuffix(fields[3], "Z"))
}

// replay simulates the same jobs, with their real run times, on the same node. They
// arrive a millisecond apart, in the order of their priorities.
func replay(ctx context.Context, inv gpu.Inventory, jobs []shortJob, real []span, overhead float64) ([]span, error) {
	stream := make([]simulate.Job, len(jobs))
	for i, j := range jobs {
		stream[i] = simulate.Job{Owner: user, Arrival: time.Duration(i) * time.Millisecond, GPUs: 1, VRAM: j.vram, CPUs: 1, Memory: 50, Work: simulate.Work{Seconds: real[i].end - real[i].begin}}
	}
	start := time.Duration(overhead * float64(time.Second))
	pool := simulate.Pool{
		Groups:   []simulate.Group{{Name: "wn", Count: 1, Inventory: inv, Config: agreementConfig}},
		Matching: simulate.Matching{Interval: cycle * time.Second, Start: start, Rank: simulate.Spread, Order: simulate.ByArrival},
	}
	out := make([]span, len(jobs))
	_, err := simulate.Run(ctx, pool, simulate.Mixed(), simulate.List(stream...), simulate.Options{Trace: func(e simulate.Event) {
		switch e.Kind {
		case simulate.Start:
			out[e.Job].begin = e.At.Seconds() // it executes by the overhead later, as all do
		case simulate.End:
			out[e.Job].end = max(out[e.Job].begin, e.At.Seconds()-overhead)
		case simulate.Refuse:
			out[e.Job].end = math.Inf(1)
		}
	}})
	return out, err
}

// kendall is the part of the pairs of jobs that start in the same order in both,
// less the part of those that do not. Pairs that start within a negotiation cycle of
// each other, in either, have no order and do not count.
func kendall(a, b []span) float64 {
	var sum, pairs float64
	for i := range a {
		for j := range i {
			if agree := sign(a[i].begin-a[j].begin) * sign(b[i].begin-b[j].begin); agree != 0 {
				pairs++
				sum += agree
			}
		}
	}
	return sum / pairs
}

// cycle is NEGOTIATOR_INTERVAL of the test's pool, in seconds.
const cycle = 1

// sign is 0 within a cycle.
func sign(d float64) float64 {
	switch {
	case d >= cycle:
		return 1
	case d <= -cycle:
		return -1
	}
	return 0
}

// displacement is by how many places the job is displaced that is so most.
func displacement(a, b []span) int {
	place := func(s []span) []int {
		order := make([]int, len(s))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(s[i].begin, s[j].begin) })
		out := make([]int, len(s))
		for p, i := range order {
			out[i] = p
		}
		return out
	}
	pa, pb := place(a), place(b)
	most := 0
	for i := range pa {
		most = max(most, pa[i]-pb[i], pb[i]-pa[i])
	}
	return most
}

// apartness is by how much the mean numbers of jobs at once differ, window by
// window, against all the jobs' time.
func apartness(a, b []span) float64 {
	var apart, whole float64
	for at := 0.0; at < max(lastEnd(a), lastEnd(b)); at += window {
		na, nb := within(a, at), within(b, at)
		apart, whole = apart+math.Abs(na-nb), whole+na
	}
	return apart / whole
}

// window is about as long as a job with its start and end, in seconds.
const window = 10.0

// within are the jobs' seconds in a window.
func within(s []span, at float64) (sum float64) {
	for _, o := range s {
		sum += max(0, min(o.end, at+window)-max(o.begin, at))
	}
	return sum
}

func lastEnd(s []span) float64 {
	return slices.MaxFunc(s, func(a, b span) int { return cmp.Compare(a.end, b.end) }).end
}

// atOnce is the largest number of jobs at one time.
func atOnce(s []span) int {
	most := 0
	for _, at := range s {
		n := 0
		for _, o := range s {
			if o.begin <= at.begin && at.begin < o.end {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// The measures tell agreement from its contrary.
func TestMeasuresOfAgreement(t *testing.T) {
	var forward, backward, later []span
	for i := range 50 {
		at := float64(2 * i)
		forward, backward, later = append(forward, span{at, at + 5}), append(backward, span{98 - at, 103 - at}), append(later, span{at + 60, at + 65})
	}
	if a, b := kendall(forward, forward), kendall(forward, backward); a != 1 || b != -1 {
		t.Errorf("tau of the same order is %v, of the contrary %v", a, b)
	}
	if a, b := apartness(forward, forward), apartness(forward, later); a != 0 || b < 1 {
		t.Errorf("the same jobs are %v apart, those a minute later %v", a, b)
	}
	if displacement(forward, forward) != 0 || displacement(forward, backward) != 49 || atOnce(forward) != 3 {
		t.Errorf("displaced by %d and %d, %d at once", displacement(forward, forward), displacement(forward, backward), atOnce(forward))
	}
	log := "001 (012.001.000) 2026-11-21T12:00:01.250Z Job executing\n...\n001 (012.000.000) 2026-11-21T12:00:00.000Z Job executing\n...\n" +
		"005 (012.000.000) 2026-11-21T12:00:03.000Z Job terminated.\n...\n005 (012.001.000) 2026-11-21T12:00:04.000Z Job terminated.\n"
	got, err := spansIn(log, 2)
	if err != nil || got[0] != (span{0, 3}) || got[1] != (span{1.25, 4}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := spansIn(log, 3); err == nil {
		t.Error("a job without events is not missed")
	}
}

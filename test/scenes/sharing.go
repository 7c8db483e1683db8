package scenes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/poll"
)

// The mixture: small jobs pinned to two GPUs, so that the share limit binds
// there, and larger ones kept off those two, so that VRAM binds elsewhere.
var (
	smallRequests = []gpu.MiB{1000, 1500, 2000, 2500}
	largeRequests = []gpu.MiB{4000, 6000, 8000, 12000, 16000, 5000}
)

// mixture are the jobs of one submission, small and large ones in the proportion of 2 to 3, and what each of them asked
// for. They end after they were released: the node fills up first, however slow it is.
type mixture struct {
	cluster int
	asked   []gpu.MiB
	release func() error
}

// sharing is the main job of gpuslot, end to end.
func sharing(ctx context.Context, st *Stage) error {
	if err := st.share(ctx, 40, 8, true); err != nil {
		return err
	}
	return errors.Join(st.checkDoctor(ctx), st.checkBundle(ctx))
}

// share lets so many jobs of the mixture run, each job for at least so many seconds. Each job has a line if
// listed; else a line says now and then how far they are.
func (st *Stage) share(ctx context.Context, jobs, seconds int, listed bool) error {
	before, err := st.Status(ctx)
	if err != nil {
		return err
	}
	m, err := st.submitMixture(ctx, jobs, seconds)
	if err != nil {
		return err
	}
	w := watch{Stage: st, mixture: m, seen: map[string]string{}, listed: listed, begin: time.Now()}
	if err := w.untilDone(ctx); err != nil {
		return err
	}
	runs, err := st.runs(ctx, before, m)
	if err != nil {
		return err
	}
	st.checkEnvironments(runs)
	st.checkConcurrency(before, runs, w.mostOnOne)
	return nil
}

// submitMixture submits all jobs at once, two small ones, three large ones, and so on: HTCondor
// offers 20 waiting jobs of a user at a time (docs/configuration.md), so either kind alone at the
// head of the queue would keep the other one from its GPUs.
func (st *Stage) submitMixture(ctx context.Context, jobs, seconds int) (m mixture, err error) {
	var hold string
	if hold, m.release, err = st.hold(ctx, "mixture"); err != nil {
		return m, err
	}
	a, b := st.Inventory.GPUs[0].UUID.Bare(), st.Inventory.GPUs[1].UUID.Bare()
	pinned := fmt.Sprintf(`DeviceUuid == "%s" || DeviceUuid == "%s"`, a, b)
	var items []string
	add := func(size gpu.MiB, where string) {
		m.asked = append(m.asked, size)
		items = append(items, fmt.Sprintf("%d,%s", size, where))
	}
	for i := range jobs {
		if round := i / 5; i%5 < 2 {
			add(smallRequests[(2*round+i%5)%len(smallRequests)], pinned)
		} else {
			add(largeRequests[(3*round+i%5-2)%len(largeRequests)], "!("+pinned+")")
		}
	}
	m.cluster, err = st.submit(ctx, job{
		Lines:   []string{"request_gpus = 1", "request_vram = $(size)", "require_gpus = $(on_gpus)"},
		Seconds: seconds,
		Hold:    hold,
		Queue:   "queue size,on_gpus from (\n" + strings.Join(items, "\n") + "\n)",
	})
	return m, err
}

// id is the id of the job with this number.
func (m mixture) id(proc int) string { return fmt.Sprintf("%d.%d", m.cluster, proc) }

// watch prints the jobs as the agent admits them and holds every moment that it
// sees against the plan.
type watch struct {
	*Stage
	mixture
	// seen has the GPU of each job that ran.
	seen      map[string]string
	mostOnOne int
	// now is how many jobs run; shown, whether the status was printed.
	now   int
	shown bool
	// listed jobs have a line each. Otherwise printed is the last line and when it came.
	listed         bool
	begin, printed time.Time
}

func (w *watch) untilDone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if w.listed {
		w.Say("  leg %s: the jobs as the agent admits them", w.Leg)
		w.Say("  %-4s %-40s %-8s %11s  %-22s %s", "GPU", "UUID", "job", "asked (MiB)", "limit handed over", "enforced by")
	}
	asked := map[string]gpu.MiB{}
	for proc, size := range w.asked {
		asked[w.id(proc)] = size
	}
	within := true
	for {
		looked := time.Now()
		s, err := w.Status(ctx)
		if err != nil {
			return err
		}
		w.now = 0
		for _, g := range s.GPUs {
			within = w.look(g, asked) && within
		}
		if err := errors.Join(w.showStatus(ctx, len(s.GPUs)), w.letGo(ctx, s.GPUs)); err != nil {
			return err
		}
		out, err := w.Run(ctx, "condor_q", "-all", "-constraint", "JobStatus != 4", "-af", "ProcId")
		if err != nil {
			return err
		}
		left := strings.Fields(out.Stdout)
		w.progress(len(left), len(s.GPUs))
		if len(left) == 0 {
			w.Check(within, "at no moment seen was a GPU beyond its VRAM pool or its share count")
			// On a busy machine jobs end between two looks. The history, which is checked below, has them all.
			w.Check(len(w.seen) > len(s.GPUs), "the agent showed %d of %d jobs at the looks while they ran", len(w.seen), len(asked))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("jobs left in the queue: %s", oneLine(out.Stdout))
		case <-time.After(poll.Pause(looked, 300*time.Millisecond)):
		}
	}
}

// progress prints every two seconds how far the jobs are.
func (w *watch) progress(left, gpus int) {
	if w.listed || time.Since(w.printed) < 2*time.Second && left > 0 {
		return
	}
	w.printed = time.Now()
	w.Say("  %2.0f s: %3d jobs run on %d GPUs, %3d have ended, %3d wait", time.Since(w.begin).Seconds(),
		w.now, gpus, len(w.asked)-left, max(0, left-w.now))
}

// letGo lets the jobs end once the node is full: all shares of some GPU are taken, and
// some other has not enough VRAM left for the smallest of the large jobs. The programs of these
// jobs have started: the agent admits a job a moment before, and each prints when its program began.
func (w *watch) letGo(ctx context.Context, gpus []api.StatusGPU) error {
	shares, vram := false, false
	for _, g := range gpus {
		left := g.PoolMiB
		for _, j := range g.Jobs {
			left -= j.BudgetMiB
		}
		shares = shares || len(g.Jobs) == g.Shares
		vram = vram || len(g.Jobs) < g.Shares && left < int64(largeRequests[0])
	}
	if !shares || !vram || w.now <= 3*len(gpus) {
		return nil
	}
	out, err := w.Run(ctx, "sh", "-c", `grep -rls --include=_condor_stdout '^START' "$(condor_config_val EXECUTE)" | wc -l`)
	if err != nil {
		return err
	}
	if started, err := strconv.Atoi(strings.TrimSpace(out.Stdout)); err != nil || started < w.now {
		return err
	}
	return w.release()
}

// look prints the new jobs of one GPU and says whether its pool and shares hold.
func (w *watch) look(g api.StatusGPU, all map[string]gpu.MiB) bool {
	var sum int64
	for _, j := range g.Jobs {
		sum += j.BudgetMiB
		asked, ours := all[j.ID]
		if _, old := w.seen[j.ID]; old || !ours {
			continue
		}
		w.seen[j.ID] = g.UUID
		if !w.listed {
			continue
		}
		w.Say("  %-4d %-40s %-8s %11d  %-22s %s", g.Index, g.UUID, j.ID, int64(asked), fmt.Sprintf("0=%dM", j.BudgetMiB), j.EnforcedBy)
	}
	w.mostOnOne = max(w.mostOnOne, len(g.Jobs))
	w.now += len(g.Jobs)
	return sum <= g.PoolMiB && len(g.Jobs) <= g.Shares
}

// showStatus prints gpuslot status once, when the node is well filled.
func (w *watch) showStatus(ctx context.Context, gpus int) error {
	if w.shown || w.now <= 3*gpus {
		return nil
	}
	w.shown = true
	w.Say("")
	_, err := w.shows(ctx, "gpuslot", "status")
	return err
}

// run is one finished job.
type run struct {
	id    string
	gpu   api.StatusGPU
	slice gpu.MiB // provisioned by the startd
	out   output
}

// runs reads what the jobs printed and what HTCondor's history says.
func (st *Stage) runs(ctx context.Context, s api.Status, m mixture) ([]run, error) {
	gpus := map[string]api.StatusGPU{}
	for _, g := range s.GPUs {
		gpus[g.UUID] = g
	}
	rows, err := st.JobAttrs(ctx, m.cluster, "JobStatus", "ExitCode", "VramProvisioned", "NumJobStarts")
	if err != nil {
		return nil, err
	}
	st.Check(len(rows) == len(m.asked), "%d of %d jobs are in the history", len(rows), len(m.asked))
	var all []run
	for proc, row := range rows {
		if row[0] != strconv.Itoa(completed) || row[1] != "0" || row[3] != "1" {
			st.Check(false, "job %s: JobStatus %s, ExitCode %s, NumJobStarts %s", m.id(proc), row[0], row[1], row[3])
			continue
		}
		o, err := st.output(ctx, m.cluster, proc)
		if err != nil {
			return nil, err
		}
		slice, err := gpu.ParseMiB(row[2])
		if err != nil {
			return nil, err
		}
		all = append(all, run{id: m.id(proc), gpu: gpus[o.Env["CUDA_VISIBLE_DEVICES"]], slice: slice, out: o})
	}
	st.Check(len(all) == len(m.asked), "%d jobs ran once and ended with exit code 0", len(all))
	return all, nil
}

// checkEnvironments holds what each job printed to what its slot had.
func (st *Stage) checkEnvironments(runs []run) {
	var wrong []string
	for _, r := range runs {
		if why := wrongEnvironment(r.out, r.gpu.UUID, r.slice); why != "" {
			wrong = append(wrong, r.id+": "+why)
		}
	}
	st.Check(len(runs) > 0 && len(wrong) == 0,
		"each of %d jobs saw one GPU, that GPU's control daemon (which answered it), and exactly 0=<its slot's VRAM>M %s",
		len(runs), strings.Join(wrong, "; "))
}

// wrongEnvironment says what is wrong with a job's environment, or nothing.
func wrongEnvironment(o output, uuid string, slice gpu.MiB) string {
	for name, want := range map[string]string{
		"CUDA_VISIBLE_DEVICES":              uuid,
		"CUDA_MPS_PIPE_DIRECTORY":           "/run/gpuslot/mps/" + uuid,
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT":  fmt.Sprintf("0=%dM", slice),
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "",
		"GPUSLOT_VRAM_MIB":                  strconv.FormatInt(int64(slice), 10),
		"TF_FORCE_GPU_ALLOW_GROWTH":         "true",
	} {
		if got := o.Env[name]; got != want || uuid == "" {
			return fmt.Sprintf("%s is %q, not %q", name, got, want)
		}
	}
	if o.Daemon != "100.0" {
		return fmt.Sprintf("its control daemon answered %q", o.Daemon)
	}
	return ""
}

// edge is a job's start or end on its GPU.
type edge struct {
	at    time.Time
	jobs  int
	slice gpu.MiB
}

// checkConcurrency replays the jobs' own clocks.
func (st *Stage) checkConcurrency(s api.Status, runs []run, mostSeen int) {
	var all []edge
	shareBound, vramBound := false, false
	for _, g := range s.GPUs {
		var edges []edge
		smallest := gpu.MiB(g.PoolMiB)
		for _, r := range runs {
			if r.gpu.UUID == g.UUID {
				edges = append(edges, edge{r.out.Start, 1, r.slice}, edge{r.out.End, -1, -r.slice})
				smallest = min(smallest, r.slice)
			}
		}
		jobs, vram := peak(edges)
		all = append(all, edges...)
		st.Check(jobs > 1 && jobs <= g.Shares && vram <= gpu.MiB(g.PoolMiB),
			"GPU %d: at most %d jobs at once (%d shares) and %d of %d MiB", g.Index, jobs, g.Shares, vram, g.PoolMiB)
		shareBound = shareBound || jobs == g.Shares
		vramBound = vramBound || jobs < g.Shares && gpu.MiB(g.PoolMiB)-vram < largeRequests[0]
	}
	st.Check(shareBound, "the share count was what bound on some GPU")
	st.Check(vramBound, "VRAM was what bound on some other GPU")
	jobs, _ := peak(all)
	st.Check(jobs > 3*len(s.GPUs), "peak concurrency %d jobs on %d GPUs: %.1f times one job per GPU (most on one GPU: %d)",
		jobs, len(s.GPUs), float64(jobs)/float64(len(s.GPUs)), mostSeen)
}

// peak is the most jobs and the most VRAM at one time. A job that ends at the
// moment another starts has ended first.
func peak(edges []edge) (jobs int, vram gpu.MiB) {
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.jobs - b.jobs
	})
	nowJobs, nowVRAM := 0, gpu.MiB(0)
	for _, e := range edges {
		nowJobs += e.jobs
		nowVRAM += e.slice
		jobs, vram = max(jobs, nowJobs), max(vram, nowVRAM)
	}
	return jobs, vram
}

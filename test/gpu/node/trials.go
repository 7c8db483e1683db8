package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// Trials are those of the whole product, in the order in which they are made.
func (n *Node) Trials() []truth.Trial {
	verify := truth.Trial{ID: "N6", Title: "gpuslot verify", Try: n.tryVerify, Claims: verifyClaims}
	if _, simulated := os.LookupEnv("GPUSLOT_SIM_STATE"); simulated {
		verify.NotDone = "its client has an environment of its own, in which a simulated driver is not found"
	}
	return []truth.Trial{
		{ID: "N1", Title: "a job through hook and wrapper meets its limit", Try: n.tryLimit, Claims: limitClaims},
		{ID: "N2", Title: "two processes that together exceed their job's budget", Try: n.tryBudget, Claims: budgetClaims},
		{ID: "N3", Title: "usage and its bounds against what the jobs themselves counted", Try: n.tryUsage, Claims: usageClaims},
		{ID: "N4", Title: "what watching costs", Try: n.tryCost, Claims: costClaims},
		{ID: "N5", Title: "gpuslotd killed and started again under a job", Try: n.tryRestart, Claims: restartClaims},
		verify,
		{ID: "N7", Title: "a fault in one job of two", Try: n.tryFault, Claims: faultClaims, Limit: 2 * time.Minute},
	}
}

const budget = 4096

func (n *Node) tryLimit(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	defer n.endJobs()
	g, err := n.status(ctx)
	if err != nil {
		return err
	}
	notes.Set("wall", g.EnforcedBy)
	notes.Set("daemon_limit_mib", int(g.LimitMiB))
	notes.Set("cgroups", n.cgroup != "")
	j, err := n.run(ctx, budget, "go on info fill 32 alloc 1024 until eof")
	if err != nil {
		return err
	}
	defer j.keep(notes, 1)
	if _, err := j.await(ctx, 0, "alloc", 20*time.Second); err != nil {
		return err
	}
	fill, _ := j.told(0, "fill")
	notes.Set("fill_mib", *fill.MiB)
	notes.Set("fill_ended_code", *fill.Ended)
	if n.cgroup == "" {
		return errNoCgroup
	}
	return n.seen(ctx, notes, j)
}

// errNoCgroup: in some containers, jobs cannot have cgroups, and without them
// it is not known whose a process is.
var errNoCgroup = errors.New("no cgroup can be made here (cgroup2, writable), so that the processes of jobs are not found")

// seen waits until the agent tells the job's VRAM. The last sample may be of the time before the
// job gave back what it had filled.
func (n *Node) seen(ctx context.Context, notes *truth.Notes, j *job) error {
	var used int64
	err := n.await(ctx, time.Minute, func(g api.StatusGPU) bool {
		for _, s := range g.Jobs {
			if s.ID == j.Job && s.UseMiB != nil {
				used = *s.UseMiB
			}
		}
		return isAllocated(used)
	})
	notes.Set("seen", err == nil)
	notes.Set("seen_mib", int(used))
	return nil
}

// isAllocated says whether a job's VRAM is the 1024 MiB that it allocated, and a context.
func isAllocated(mib int64) bool { return mib >= 1024 && mib < 2048 }

var limitClaims = []truth.Claim{
	{Text: "The job can allocate some, and not more than its budget.", Needs: []string{"fill_mib"}, Holds: func(v truth.Values) bool { return v.Number("fill_mib") > 0 && v.Number("fill_mib") <= budget }},
	{Text: "Beyond it it meets CUDA_ERROR_OUT_OF_MEMORY.", Needs: []string{"fill_ended_code"}, Holds: func(v truth.Values) bool { return v.Number("fill_ended_code") == 2 }},
	{Text: "gpuslot status tells its VRAM: what it allocated and a context of less than 1 GiB.", Needs: []string{"seen"}, Holds: func(v truth.Values) bool {
		return v.True("seen") && isAllocated(int64(v.Number("seen_mib")))
	}},
}

// tryBudget has one job of two exceed its budget as a whole; each process stays
// below the limit of processes.
func (n *Node) tryBudget(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	if n.cgroup == "" {
		return errNoCgroup
	}
	defer n.endJobs()
	good, err := n.run(ctx, budget, "go on alloc 512 until eof")
	if err != nil {
		return err
	}
	greedy := "go on alloc 2500 until eof"
	bad, err := n.run(ctx, budget, greedy, greedy)
	if err != nil {
		return err
	}
	defer good.keep(notes, 1)
	defer bad.keep(notes, 2)
	second, err := bad.await(ctx, 1, "alloc", 20*time.Second)
	if err != nil {
		return err
	}
	notes.Set("second_code", second.Code) // not 0 where a wall holds the whole job at once
	began := time.Now()
	line, err := bad.await(ctx, 0, "until eof", 15*time.Second)
	if err == nil {
		notes.Set("ended_code", line.Code)
		notes.Set("ended_after_ms", float64(time.Since(began).Milliseconds()))
	}
	_, hit := good.told(0, "until eof")
	notes.Set("neighbour_lives", !hit && !good.Over())
	return nil
}

var budgetClaims = []truth.Claim{
	{Text: "A job that exceeds its budget as a whole is ended (CUDA_ERROR_MPS_CLIENT_TERMINATED), unless the driver refused the memory.", Needs: []string{"second_code"}, Holds: func(v truth.Values) bool {
		return v.Number("second_code") != 0 || v.Number("ended_code") == 810
	}},
	{Text: "Its neighbour lives on.", Needs: []string{"neighbour_lives"}, Holds: func(v truth.Values) bool { return v.True("neighbour_lives") }},
}

// tryUsage has two jobs keep parts of the multiprocessors busy all the time, and
// asks the agent meanwhile.
func (n *Node) tryUsage(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	if n.cgroup == "" {
		return errNoCgroup
	}
	defer n.endJobs()
	percents := []int{20, 40}
	var jobs []*job
	for _, p := range percents {
		j, err := n.run(ctx, budget, fmt.Sprintf("go on info alloc %d load %d 100 repeat %d load %d 250", 10*p, p, int(n.Measure.Seconds()+5)*4, p))
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
		defer j.keep(notes, 1)
	}
	for i, j := range jobs {
		line, err := j.await(ctx, 0, "load", 20*time.Second)
		if err != nil {
			return err
		}
		info, _ := j.told(0, "info")
		if info.SMs == nil || *info.SMs == 0 {
			return errors.New("CUDA does not tell how many multiprocessors there are")
		}
		places := line.Places // where the blocks were, by their own word; else as many as there are blocks
		if places == 0 {
			places = line.Blocks
		}
		notes.Set(fmt.Sprintf("job%d_busy", i), float64(places)/float64(n.multiprocessors(*info.SMs)))
	}
	return n.sample(ctx, notes, jobs)
}

// multiprocessors are the GPU's; a capped client is told fewer.
func (n *Node) multiprocessors(told int) int {
	if n.GPU.Multiprocessors > 0 {
		return n.GPU.Multiprocessors
	}
	return told
}

// sampleWait is how much longer than planned a first sample may take: jobs are busy so long.
const sampleWait = 4 * time.Second

// sample asks for each job's share some times while all are busy. The first answer is left
// out: it may be of a time in which they were not yet.
func (n *Node) sample(ctx context.Context, notes *truth.Notes, jobs []*job) error {
	low, middle, high := make([]float64, len(jobs)), make([]float64, len(jobs)), make([]float64, len(jobs))
	begun, samples := false, 0
	for end := time.Now().Add(n.Measure); time.Now().Before(end) || samples == 0 && time.Since(end) < sampleWait; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		g, err := n.status(ctx)
		if err != nil {
			return err
		}
		notes.Record("agent", "status", fmt.Sprintf("SM %s; %s", number(g.SM), jobsText(g.Jobs)))
		shares := make([]api.StatusJob, len(jobs))
		found := 0
		for i, j := range jobs {
			for _, s := range g.Jobs {
				if s.ID == j.Job && s.SMMin != nil && s.SM != nil && s.SMMax != nil {
					shares[i] = s
					found++
				}
			}
		}
		if found < len(jobs) {
			continue
		}
		if !begun {
			begun = true
			continue
		}
		samples++
		for i, s := range shares {
			low[i], middle[i], high[i] = low[i]+*s.SMMin, middle[i]+*s.SM, high[i]+*s.SMMax
		}
	}
	notes.Set("samples", samples)
	for i := range jobs {
		if samples > 0 {
			by := float64(samples)
			notes.Set(fmt.Sprintf("job%d_min", i), low[i]/by)
			notes.Set(fmt.Sprintf("job%d_estimate", i), middle[i]/by)
			notes.Set(fmt.Sprintf("job%d_max", i), high[i]/by)
		}
	}
	return nil
}

func number(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

func jobsText(jobs []api.StatusJob) string {
	var parts []string
	for _, j := range jobs {
		parts = append(parts, fmt.Sprintf("%s %s..%s..%s", j.ID, number(j.SMMin), number(j.SM), number(j.SMMax)))
	}
	return strings.Join(parts, ", ")
}

// slack is what launching and sampling may cost in a mean of some seconds.
const slack = 0.05

func bounded(job string) truth.Claim {
	return truth.Claim{
		Text:  "The bounds of " + job + " hold what it kept busy by its own count.",
		Needs: []string{job + "_busy", job + "_min", job + "_max"},
		Holds: func(v truth.Values) bool {
			busy := v.Number(job + "_busy")
			return v.Number(job+"_min") <= busy+slack && v.Number(job+"_max") >= busy-slack
		},
	}
}

var usageClaims = []truth.Claim{bounded("job0"), bounded("job1")}

// tryCost takes the agent's processor time with as many jobs as there are shares.
func (n *Node) tryCost(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	defer n.endJobs()
	for range shares {
		j, err := n.run(ctx, budget/2, "alloc 256 repeat 1000 load 10 20 until eof")
		if err != nil {
			return err
		}
		if _, err := j.await(ctx, 0, "alloc", 20*time.Second); err != nil {
			return err
		}
	}
	before, err := n.agentCPU()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(n.Measure):
	}
	after, err := n.agentCPU()
	if err != nil {
		return err
	}
	notes.Set("cpu_percent", (after-before).Seconds()/n.Measure.Seconds()*100)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.Process.Pid)); err == nil {
		_, rest, _ := strings.Cut(string(b), "VmRSS:")
		if f := strings.Fields(rest); len(f) > 0 {
			if kib, err := strconv.Atoi(f[0]); err == nil {
				notes.Set("rss_mib", kib/1024)
			}
		}
	}
	return nil
}

// agentCPU is the processor time of the agent, in ticks of 10 ms (proc(5),
// fields 14 and 15 of stat).
func (n *Node) agentCPU() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.agent.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, errors.New("the agent is gone")
	}
	user, errUser := strconv.Atoi(f[11])
	system, errSystem := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(errUser, errSystem)
}

var costClaims = []truth.Claim{
	{Text: "gpuslotd takes less than 5 % of a core with a health round each second.", Needs: []string{"cpu_percent"}, Holds: func(v truth.Values) bool { return v.Number("cpu_percent") < 5 }},
	{Text: "It takes less than 100 MiB of memory, the driver's libraries included.", Needs: []string{"rss_mib"}, Holds: func(v truth.Values) bool { return v.Number("rss_mib") < 100 }},
}

func (n *Node) tryRestart(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	defer n.endJobs()
	j, err := n.run(ctx, budget, "go on alloc 512 until eof")
	if err != nil {
		return err
	}
	defer j.keep(notes, 1)
	if _, err := j.await(ctx, 0, "alloc", 20*time.Second); err != nil {
		return err
	}
	before, err := n.status(ctx)
	if err != nil {
		return err
	}
	n.killAgent()
	n.startAgent()
	if err := n.await(ctx, 30*time.Second, func(g api.StatusGPU) bool { return g.Accept }); err != nil {
		return err
	}
	after, err := n.status(ctx)
	if err != nil {
		return err
	}
	_, hit := j.told(0, "until eof")
	notes.Set("same_daemon", before.DaemonPID == after.DaemonPID && after.DaemonPID != 0)
	notes.Set("job_lives", !hit && !j.Over())
	return nil
}

var restartClaims = []truth.Claim{
	{Text: "The control daemon is adopted, not started anew.", Needs: []string{"same_daemon"}, Holds: func(v truth.Values) bool { return v.True("same_daemon") }},
	{Text: "The job notices nothing.", Needs: []string{"job_lives"}, Holds: func(v truth.Values) bool { return v.True("job_lives") }},
}

// tryVerify waits until the GPU is open, and tries again where it closed meanwhile, as an
// operator would: where the trial before killed busy jobs, an Xid 31 follows and closes it
// until its server is active again (H200, 580.159.04).
func (n *Node) tryVerify(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	for end := time.Now().Add(time.Minute); ; {
		if err := n.await(ctx, time.Minute, func(g api.StatusGPU) bool { return g.Accept }); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, n.path("prog/gpuslot"), "verify", "--socket", n.socket(), string(n.GPU.UUID))
		out, err := cmd.CombinedOutput()
		notes.Record("gpuslot", "verify", string(out))
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		if code := cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(string(out), " is closed: ") || time.Now().After(end) {
			notes.Set("status", code)
			return nil
		}
	}
}

var verifyClaims = []truth.Claim{
	{Text: "A client meets its limits by gpuslot verify's own word.", Needs: []string{"status"}, Holds: func(v truth.Values) bool { return v.Number("status") == 0 }},
}

// tryFault has one job fault; its GPU must close, and open when no client is left
// whom the fault met.
func (n *Node) tryFault(ctx context.Context, _ *truth.Lab, notes *truth.Notes) error {
	defer n.endJobs()
	victim, err := n.run(ctx, budget, "go on alloc 512 until eof")
	if err != nil {
		return err
	}
	defer victim.keep(notes, 1)
	if _, err := victim.await(ctx, 0, "alloc", 20*time.Second); err != nil {
		return err
	}
	culprit, err := n.run(ctx, budget, "go on context fault illegal_address until eof")
	if err != nil {
		return err
	}
	defer culprit.keep(notes, 1)
	if _, err := culprit.await(ctx, 0, "fault", 20*time.Second); err != nil {
		return err
	}
	began := time.Now()
	if line, err := victim.await(ctx, 0, "until eof", 5*time.Second); err == nil {
		notes.Set("victim_code", line.Code)
	}
	var reason string
	err = n.await(ctx, 15*time.Second, func(g api.StatusGPU) bool { reason = g.Reason; return !g.Accept })
	notes.Set("closes", err == nil)
	if err == nil {
		notes.Set("closed_after_ms", float64(time.Since(began).Milliseconds()))
		notes.Set("reason", reason)
	}
	n.endJobs()
	began = time.Now()
	err = n.await(ctx, time.Minute, func(g api.StatusGPU) bool { return g.Accept })
	notes.Set("opens", err == nil)
	if err == nil {
		notes.Set("opened_after_ms", float64(time.Since(began).Milliseconds()))
	}
	return nil
}

var faultClaims = []truth.Claim{
	{Text: "A fault closes the GPU within 10 s.", Needs: []string{"closes"}, Holds: func(v truth.Values) bool {
		_, timed := v["closed_after_ms"]
		return v.True("closes") && timed && v.Number("closed_after_ms") < 10000
	}},
	{Text: "It opens again when the jobs that met it have ended.", Needs: []string{"opens"}, Holds: func(v truth.Values) bool { return v.True("opens") }},
}

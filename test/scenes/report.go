// Package scenes plays what a site expects of gpuslot on a running test/site:
// each scene submits real jobs, does something to the node, and checks what
// must hold. The demo prints the scenes; the tests run the same ones. Start at
// All.
package scenes

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/site"
)

// Stage is what a scene plays on: the site and the inventory it was made from.
type Stage struct {
	*site.Site
	Inventory gpu.Inventory
	*Report
}

// Scene is one thing a site expects.
type Scene struct {
	// Name is one word, for -run.
	Name string
	// Leg is whose control daemons it needs.
	Leg site.Leg
	// Says is the sentence that the scene shows.
	Says string
	// Play returns an error only if it could not go on; what must hold it tells
	// the report.
	Play func(ctx context.Context, st *Stage) error
}

// All scenes in the order of the demo, those of one leg together. Each leaves
// the node as it found it.
func All() []Scene {
	return []Scene{
		{"Sharing", site.Real, "40 jobs of mixed request_vram share the GPUs, never beyond a GPU's VRAM pool or share count",
			sharing},
		{"OwnVariables", site.Real, "a job that sets its own CUDA_MPS_* or CUDA_VISIBLE_DEVICES gets ours instead", ownVariables},
		{"NoRequest", site.Real, "a GPU job without request_vram is left to other nodes", noRequest},
		{"TwoGPUs", site.Real, "request_gpus = 2 does not land on shared GPUs", twoGPUs},
		{"CPUOnly", site.Real, "a CPU-only job runs beside them with no GPU visible", cpuOnly},
		{"Interactive", site.Real, "condor_submit -i opens a shell with the job's GPU and limits", interactive},
		{"SSHToJob", site.Real, "condor_ssh_to_job sees the job's GPU and limits, and gpuslot here tells them", sshToJob},
		{"TooLarge", site.Real, "a job larger than any GPU is refused at submit, and told the largest", tooLarge},
		{"Wedged", site.Real, "with a control daemon wedged, matched jobs are requeued with the reason and later ones are not matched there", wedged},
		{"Stopped", site.Real, "a control daemon that was stopped is started again, its limits set and read back before the GPU accepts", stopped},
		{"AgentKilled", site.Real, "kill -9 of the agent: jobs and control daemons live on, the restarted agent adopts them", agentKilled},
		{"AgentDead", site.Real, "with the agent dead and the startd restarted, no GPU job matches", agentDead},
		{"Closing", site.Real, "a GPU closed by its owners takes no new jobs within two seconds and keeps those that run, through a restart of gpuslotd; opened, the waiting job starts", closing},
		{"Attached", site.Sim, "jobs attach to their GPU's MPS server, get their VRAM, and beyond it CUDA's own out-of-memory error", attached},
		{"Accounts", site.Sim, "a second account waits in the queue while the first one's MPS server has the GPU, and comes on after", accounts},
		{"DroppedPipe", site.Sim, "a job that drops its pipe directory is refused by compute mode exclusive-process", droppedPipe},
		{"KilledBusy", site.Sim, "a job killed in the middle of its work takes its neighbour on the GPU along; the server takes the next job", killedBusy},
		{"OverBudget", site.Sim, "a job whose processes together use more than its budget is held with what to ask for; its neighbour runs on", overBudget},
		{"RemovedBusy", site.Sim, "condor_vacate_job and condor_rm of a job at work let its MPS client leave first; its neighbour runs on", removedBusy},
		{"LoginsLeave", site.Sim, "a logout from condor_ssh_to_job and a dropped connection end the login's MPS clients, and the job's go on", loginsLeave},
		{"ServerFault", site.Sim, "a fatal GPU error closes its GPU until the last client that met it has ended; other GPUs go on", serverFault},
		{"ServerSuspended", site.Sim, "a job stops the MPS server of its account: its GPU takes no jobs and says why, others go on; when its jobs have ended it opens", serverSuspended},
		{"OutsideJobs", site.Sim, "a client that a job starts by the service manager of its account is ended, and jobs run on", outsideJobs},
		{"OwnUsage", site.Sim, "three jobs in a row in one slot show each its own VRAM, GPU time and energy in HTCondor's log and history", ownUsage},
		{"Quiesce", site.Sim, "a driver upgraded under its module closes all GPUs and disturbs no job; gpuslot node quiesce waits for the jobs and lets go of the driver, resume verifies and opens", quiesce},
		{"Verify", site.Sim, "gpuslot verify runs a CUDA client as a job and shows that each GPU keeps its limits", verify},
	}
}

// shows is what a command prints, which the report shows, too.
func (st *Stage) shows(ctx context.Context, args ...string) (string, error) {
	out, err := st.Run(ctx, args...)
	st.Say("$ %s\n%s", strings.Join(args, " "), out.Stdout)
	return out.Stdout, err
}

// Report tells what was seen, and remembers what failed.
type Report struct {
	Out    io.Writer
	Failed []string
}

// Say prints one line.
func (r *Report) Say(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

// Check prints whether something held.
func (r *Report) Check(ok bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if ok {
		r.Say("  ok      %s", what)
		return
	}
	r.Failed = append(r.Failed, what)
	r.Say("  FAILED  %s", what)
}

// Contains checks that a text says something.
func (r *Report) Contains(text, want, what string) {
	if strings.Contains(text, want) {
		r.Check(true, "%s: %s", what, oneLine(lineWith(text, want)))
		return
	}
	r.Check(false, "%s should say %q, says: %s", what, want, oneLine(text))
}

func lineWith(text, want string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, want) {
			return line
		}
	}
	return text
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// Package here says to a job, in a few lines of text, what it holds of a GPU.
// What it holds the agent knows (api.OpHere); this package only words it, for
// both programs that a job can ask with. Start at Text.
package here

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/gpuslot/gpuslot/agent/api"
)

// The exit codes of "here" besides 0 and 1.
const (
	// ExitNoShare: the job has no GPU, nor a part of one.
	ExitNoShare = 3
	// ExitNoJob: the caller is no job's process.
	ExitNoJob = 6
)

// NoJob is what a caller outside any job is told.
const NoJob = "this is no process of a job on this node: " +
	"run it inside a job, as condor_ssh_to_job does, or see gpuslot status as root"

// Help is the text of both programs about exit codes.
const Help = `Exit codes: 0 the job has a GPU or a part of one; 1 gpuslotd cannot be asked; 3 it
has none; 6 this is no process of a job.`

// meanings says what each enforcement means to the job.
var meanings = map[string]string{
	"cgroup": "the driver holds all processes of the job to the budget together; " +
		"CUDA shows the budget as the GPU's memory",
	"daemon": "CUDA refuses each process more than the budget; what all processes have together is watched",
	"watch":  "what all processes have together is watched; a job above its budget is held by HTCondor",
	"whole":  "the job has the GPU alone",
	"mig":    "a MIG device: the hardware keeps its memory and multiprocessors apart",
	"none":   "only the job's own environment: leave CUDA_MPS_* as it is",
}

// Text prints aligned columns, then what the enforcement means.
func Text(w io.Writer, h api.Here) {
	fmt.Fprintln(w, title(h))
	if len(h.GPUs) == 0 {
		fmt.Fprintln(w, "the job has no GPU, nor a part of one")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GPU\tNAME\tBUDGET/MiB\tUSED/MiB\tNEIGHBOURS\tENFORCED BY")
	for _, g := range h.GPUs {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%s\n", g.UUID, name(g), g.BudgetMiB, used(g), g.Neighbours, meaning(g))
	}
	_ = t.Flush() // an error of w shows at its next use
	told := map[string]bool{}
	for _, g := range h.GPUs {
		if text := meanings[g.EnforcedBy]; text != "" && !told[g.EnforcedBy] {
			fmt.Fprintf(w, "enforced by %s: %s\n", g.EnforcedBy, text)
			told[g.EnforcedBy] = true
		}
	}
	if h.Hold != "" {
		fmt.Fprintf(w, "HTCondor is about to hold this job: %s\n", h.Hold)
	}
}

func title(h api.Here) string {
	if h.Job == "" {
		return h.Slot
	}
	return fmt.Sprintf("%s, job %s", h.Slot, h.Job)
}

func name(g api.HereGPU) string {
	if g.Name == "" {
		return "-"
	}
	return g.Name
}

// used is a number, or a question mark.
func used(g api.HereGPU) string {
	if g.UseMiB == nil {
		return "?"
	}
	return strconv.FormatInt(*g.UseMiB, 10)
}

func meaning(g api.HereGPU) string {
	if g.SMs == nil {
		return g.EnforcedBy
	}
	return fmt.Sprintf("%s, %d SMs", g.EnforcedBy, *g.SMs)
}

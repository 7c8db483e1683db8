package scenes

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// Each third job wants more than it asked for. A quarter of the least and what the budget is
// rounded up by hold a context of an H100, 518 MiB.
var clientRequests = []gpu.MiB{2200, 4000, 8000, 2500, 16000, 6000}

const clientJobs = 24

// greedy says which jobs allocate beyond their budget.
func greedy(proc int) bool { return proc%3 == 2 }

// clientJob takes three quarters of what it asked for and computes; a greedy one
// then takes as much as it asked for once more.
func clientJob(asked gpu.MiB, greedy bool) string {
	words := fmt.Sprintf("info alloc %d load 20 8s", asked*3/4)
	if greedy {
		words += fmt.Sprintf(" alloc %d", asked)
	}
	return words
}

func attached(ctx context.Context, st *Stage) error {
	var items []string
	var asked []gpu.MiB
	for proc := range clientJobs {
		size := clientRequests[proc%len(clientRequests)]
		asked = append(asked, size)
		items = append(items, fmt.Sprintf("%d,%s", size, clientJob(size, greedy(proc))))
	}
	cluster, err := st.submit(ctx, job{
		Program: gpuJob, Arguments: noHold + " $(words)",
		Lines: []string{"request_gpus = 1", "request_vram = $(size)"},
		Queue: "queue size, words from (\n" + strings.Join(items, "\n") + "\n)",
	})
	if err != nil {
		return err
	}
	c := &crowd{Stage: st, seen: map[int]seenClient{}, most: map[int]int{}}
	if err := c.untilDone(ctx, cluster); err != nil {
		return err
	}
	if err := c.checkJobs(ctx, cluster, asked); err != nil {
		return err
	}
	c.checkCrowd()
	return c.checkListed(ctx)
}

// pidLine is the first line of a gpuJob.
var pidLine = regexp.MustCompile(`(?m)^PID (\d+)$`)

// clientRun is what one job did.
type clientRun struct {
	seenClient
	proc        int
	asked, plan gpu.MiB // plan: the slot's VRAM
	end         string
}

// checkJobs holds what each job printed to what it asked for.
func (c *crowd) checkJobs(ctx context.Context, cluster int, asked []gpu.MiB) error {
	rows, err := c.JobAttrs(ctx, cluster, "ExitCode", "NumJobStarts", "VramProvisioned")
	if err != nil {
		return err
	}
	var runs []clientRun
	var wrong []string
	for proc, row := range rows {
		text, err := c.printed(ctx, user, cluster, proc)
		if err != nil {
			return err
		}
		r := clientRun{proc: proc, asked: asked[proc]}
		if r.plan, err = gpu.ParseMiB(row[2]); err != nil {
			return err
		}
		if m := pidLine.FindStringSubmatch(text); m != nil {
			pid, _ := strconv.Atoi(m[1]) // digits
			r.seenClient = c.seen[pid]
		}
		var why string
		if r.end, why = judge(r, text, row[0], row[1]); why != "" {
			wrong = append(wrong, fmt.Sprintf("%d.%d: %s", cluster, proc, why))
		}
		runs = append(runs, r)
	}
	c.table(cluster, runs)
	seen := 0
	for _, r := range runs {
		if r.PID != 0 {
			seen++
		}
	}
	c.Check(seen > clientJobs/2, "%d of %d jobs were seen while they ran", seen, clientJobs)
	c.Check(len(runs) == clientJobs && len(wrong) == 0,
		"each of %d jobs, started once, was an MPS client under the limit of its slot and got its VRAM; the %d greedy ones CUDA's error 2 beyond it %s",
		len(runs), clientJobs/3, strings.Join(wrong, "; "))
	return nil
}

// judge says how a job ended and what is wrong with that.
func judge(r clientRun, text, code, starts string) (end, wrong string) {
	inside := fmt.Sprintf("alloc %d MiB: ok\n", r.asked*3/4)
	beyond := fmt.Sprintf("alloc %d MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY", r.asked)
	want := "0"
	end = "exit code " + code
	if greedy(r.proc) {
		want = "1"
		end += fmt.Sprintf(", %d MiB more: %s", r.asked, answer(text, r.asked))
	}
	switch {
	case code != want || starts != "1":
		return end, fmt.Sprintf("exit code %s after %s starts", code, starts)
	// On a busy machine one may have come and gone between two looks.
	case r.PID != 0 && r.Limit != r.plan:
		return end, fmt.Sprintf("seen with a limit of %d MiB, its slot has %d", r.Limit, r.plan)
	case !strings.Contains(text, inside) || greedy(r.proc) != strings.Contains(text, beyond):
		return end, "it printed: " + oneLine(text)
	}
	return end, ""
}

// answer is what an allocation of that size got.
func answer(text string, size gpu.MiB) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("alloc %d MiB: ", size)); ok {
			result, _, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			return result
		}
	}
	return "never tried"
}

func (c *crowd) table(cluster int, runs []clientRun) {
	slices.SortStableFunc(runs, func(a, b clientRun) int { return cmp.Compare(a.GPU, b.GPU) })
	c.Say("  leg %s: the jobs as MPS clients of their GPUs", c.Leg)
	c.Say("  %-3s  %-6s  %10s  %11s  %11s  %10s  %s", "GPU", "job", "MPS server", "asked (MiB)", "limit (MiB)", "held (MiB)", "end")
	for _, r := range runs {
		c.Say("  %-3d  %-6s  %10d  %11d  %11d  %10d  %s", r.GPU, fmt.Sprintf("%d.%d", cluster, r.proc), r.server, r.asked, r.Limit, r.Memory, r.end)
	}
}

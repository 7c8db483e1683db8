package condor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// WaitingJob is an idle job of the pool.
type WaitingJob struct {
	// GPUs and VRAM (MiB) are what it asks for; VRAM 0 if it does not say.
	GPUs, VRAM int64
	// Waited is for how long it has been idle.
	Waited time.Duration
}

// IdleJobs asks the pool's access points for idle jobs, at most limit of each access
// point. Whoever may read the queue may ask.
func IdleJobs(ctx context.Context, constraint string, limit int) ([]WaitingJob, error) {
	out, err := output(ctx, nil, "condor_q", "-global", "-allusers", "-constraint", constraint, "-limit", strconv.Itoa(limit),
		"-af", waitingColumns[0], waitingColumns[1], waitingColumns[2])
	if err != nil {
		return nil, err
	}
	return parseWaiting(out), nil
}

// waitingColumns are sums, so that each is a number or one word: a string may have line
// breaks, and -af prints them.
var waitingColumns = [...]string{"RequestGPUs+0", "RequestVRAM+0", "time()-EnteredCurrentStatus"}

// parseWaiting reads what IdleJobs asked for. Other lines, such as "All queues are
// empty", and jobs that ask for no number of GPUs are left out.
func parseWaiting(text string) []WaitingJob {
	var jobs []WaitingJob
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		gpus, err := strconv.ParseInt(words[0], 10, 32)
		waited, errWaited := strconv.ParseInt(words[2], 10, 32)
		if err != nil || errWaited != nil || gpus < 1 {
			continue
		}
		vram, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			vram = 0
		}
		jobs = append(jobs, WaitingJob{GPUs: gpus, VRAM: max(0, vram), Waited: time.Duration(max(0, waited)) * time.Second})
	}
	return jobs
}

// Idle is the constraint for jobs that have waited for so long and might run on the
// node: those for whole elastic GPUs, on at most so many, those for shares, and those
// for a share of so much VRAM. Empty where the node has no such GPUs.
type Idle struct{ Whole, Shared, Large string }

// Idle says which jobs wait for what.
func (n Node) Idle(patience, largeAfter time.Duration, most int, large int64) Idle {
	const idle = "JobStatus == 1 && JobUniverse != 7 && JobUniverse != 12 && time() - EnteredCurrentStatus >= %d"
	waited := func(d time.Duration) string { return fmt.Sprintf(idle, int64(d/time.Second)) }
	var c Idle
	if len(n.elastic()) > 0 {
		// As START has it, without what is of the moment.
		start := elasticType(n).start
		c.Whole = strings.ReplaceAll(strings.Join(start[:len(start)-1], " && "), "TARGET.", "") + fmt.Sprintf(" && RequestGPUs <= %d && ", most) + waited(patience)
	}
	if largest := largestShare(n); largest > 0 {
		share := fmt.Sprintf("RequestGPUs =?= 1 && RequestVRAM > 0 && RequestVRAM <= %d && ", int64(largest))
		c.Shared = share + waited(patience)
		if largeAfter > 0 {
			c.Large = share + fmt.Sprintf("RequestVRAM >= %d && ", large) + waited(largeAfter)
		}
	}
	return c
}

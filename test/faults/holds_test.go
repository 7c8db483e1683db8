package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
)

// What must hold after every injection. A broken one is named by these words.
const (
	agentAnswers  = "the agent answers"
	reasonsStated = "every GPU is open, or closed with a stated reason"
	notDoubled    = "no budget is booked twice"
	othersRun     = "no other job is disturbed"
	noOrphans     = "no MPS server outlives its control daemon"
	limitsStand   = "an open GPU's control daemon has the limit that status tells"
	settles       = "the node settles"
)

// broken is one thing that does not hold.
type broken struct{ rule, text string }

// look finds what does not hold now; nil if all does.
func (c *campaign) look() (*api.Status, *broken) {
	st, err := c.status()
	if err != nil {
		return nil, &broken{agentAnswers, err.Error()}
	}
	for _, check := range []func(*api.Status) *broken{c.stated, c.budgets, c.undisturbed, c.orphans} {
		if b := check(st); b != nil {
			return st, b
		}
	}
	return st, nil
}

func (c *campaign) stated(st *api.Status) *broken {
	for i := range gpus {
		g := c.gpuOf(st, i)
		switch {
		case g == nil:
			return &broken{reasonsStated, fmt.Sprintf("GPU %d is not in the status", i)}
		case !g.Accept && strings.TrimSpace(g.Reason) == "":
			return &broken{reasonsStated, fmt.Sprintf("GPU %d is closed without a reason", i)}
		}
	}
	return nil
}

// budgets adds up twice: what the status says, and what was admitted.
func (c *campaign) budgets(st *api.Status) *broken {
	for i := range gpus {
		g := c.gpuOf(st, i)
		if g.UUID == "" {
			continue // it is lost: nothing of it can be given away
		}
		told, admitted := int64(0), int64(0)
		for _, j := range g.Jobs {
			told += j.BudgetMiB
		}
		running := c.on(i)
		for _, j := range running {
			admitted += j.budget
			if !slices.ContainsFunc(g.Jobs, func(s api.StatusJob) bool {
				short, _, _ := strings.Cut(s.Slot, "@")
				return short == j.Name && s.BudgetMiB == j.budget
			}) && !j.Over() {
				return &broken{notDoubled, fmt.Sprintf("%s is not in the status: its budget can be given away again", j)}
			}
		}
		if told > g.PoolMiB || admitted > g.PoolMiB || told != g.UsedMiB {
			return &broken{notDoubled, fmt.Sprintf("GPU %d has a pool of %d MiB; status lists budgets of %d (says %d), jobs of %d run", i, g.PoolMiB, told, g.UsedMiB, admitted)}
		}
		if len(g.Jobs) > g.Shares || len(running) > g.Shares {
			return &broken{notDoubled, fmt.Sprintf("GPU %d has %d shares; status lists %d jobs, %d run", i, g.Shares, len(g.Jobs), len(running))}
		}
	}
	return nil
}

// undisturbed: nobody but those that the injection touches, and what it may
// take along, notices it.
func (c *campaign) undisturbed(*api.Status) *broken {
	for _, j := range c.watched {
		if why := j.disturbed(); why != "" {
			return &broken{othersRun, fmt.Sprintf("%s: %s", j, why)}
		}
	}
	c.watched = slices.DeleteFunc(c.watched, func(j *job) bool { return j.Over() })
	return nil
}

const serverProgram = "nvidia-cuda-mps-server"

// orphans: each server's parent must be the daemon that holds the lock.
func (c *campaign) orphans(*api.Status) *broken {
	var daemons []int
	for i := range gpus {
		daemons = append(daemons, c.daemonPID(i))
	}
	for _, p := range c.processes() {
		if p.program == serverProgram && !slices.Contains(daemons, p.parent) {
			return &broken{noOrphans, fmt.Sprintf("%s; control daemons are %v", p, daemons)}
		}
	}
	return nil
}

// limits asks the daemons past the agent.
func (c *campaign) limits(st *api.Status) *broken {
	for i := range gpus {
		g := c.gpuOf(st, i)
		if !g.Accept {
			continue
		}
		out, err := c.control(i, 0, "get_default_device_pinned_mem_limit 0")
		if want := spoken(g.LimitMiB); err != nil || out != want {
			return &broken{limitsStand, fmt.Sprintf("GPU %d is open with a limit of %d MiB, and its control daemon says %q, not %q (%v)", i, g.LimitMiB, out, want, err)}
		}
	}
	return nil
}

// spoken is a limit in the daemon's words: cut to whole GiB (facts of 535 to 555).
func spoken(mib int64) string {
	if mib >= 1024 {
		return strconv.FormatInt(mib/1024, 10) + "G"
	}
	return strconv.FormatInt(mib, 10) + "M"
}

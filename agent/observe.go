package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/gpu"
)

// This file and observe_jobs.go are mode "observe": the node's GPUs, HTCondor and
// jobs stay as they are. No hook tells of jobs: their starters are seen in /proc,
// and the startd's ads say whose they are and which GPUs they have.

// observe ends a round on a node that is only looked at.
func (a *Agent) observe(ctx context.Context, v *view, start time.Time, problem func(error)) {
	a.beat()
	problem(a.troubles.Look(ctx, v.physicals(), v.serverActive))
	problem(writePlan(v.config.Paths, v.plan))
	a.publish(v, start)
}

// wantsToObserve says whether the control daemon can be left untried, before there
// is a plan.
func wantsToObserve(last *view) bool {
	return last.plan.Observe || !last.planned && last.next.For(last.host(), gpu.GPU{}).Mode == config.ModeObserve
}

// sameDuty refuses a plan by which a node would begin or cease to be looked at only
// while jobs run by the other rules.
func (a *Agent) sameDuty(v *view, p plan.Plan) error {
	switch {
	case v.planned && v.plan.Observe && !p.Observe:
		return errors.New(
			`the node is observed (mode = "observe") and would offer its GPUs from now on: drain it (condor_drain), then ` +
				`systemctl restart gpuslotd condor`,
		)
	case v.planned && !v.plan.Observe && p.Observe:
		return fmt.Errorf(
			`mode = "observe" leaves the node as it is, and this one is set up for another mode: %s`,
			leaveFirst,
		)
	case !v.planned && p.Observe:
		return a.nothingLeft(v.next.Paths)
	}
	return nil
}

// leaveFirst is how a node is handed back.
const leaveFirst = "drain it (condor_drain), stop gpuslotd.socket and gpuslotd.service, run gpuslotd --release, " +
	"then systemctl start gpuslotd.socket gpuslotd and systemctl restart condor"

// nothingLeft refuses to look on where an earlier mode's set-up still stands: what
// HTCondor does there is not the site's own.
func (a *Agent) nothingLeft(p config.Paths) error {
	var left []string
	if a.lostPlan != nil || a.recalled.Schema != "" && !a.recalled.Observe {
		left = append(left, p.PlanFile())
	}
	for _, file := range []string{p.CondorConfig(), startd.ClosedFile(p)} {
		if _, err := os.Lstat(file); err == nil {
			left = append(left, file)
		}
	}
	u, err := modes.Read(modes.File(p))
	if err != nil || len(u.ComputeModes)+len(u.MIGModes) > 0 {
		left = append(left, modes.File(p))
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf(
		`mode = "observe" leaves the node as it is, but an earlier mode's set-up still stands (%s): %s`,
		strings.Join(left, ", "),
		leaveFirst,
	)
}

// refusesObserved is what who would keep jobs away hears.
func (v *view) refusesObserved() error {
	if !v.plan.Observe {
		return nil
	}
	return errors.New(
		`this node is observed (mode = "observe"): gpuslot keeps no job from it; use HTCondor's own condor_drain or ` +
			`condor_off`,
	)
}

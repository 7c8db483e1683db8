// Package observe is mode "observe": the node's GPUs, HTCondor and jobs stay as they are. No
// hook reports jobs: their starters are seen in /proc, and the startd's ads say whose they
// are and which GPUs they have.
//
// Start at Duty, which says when a node may begin or cease to be observed. Jobs finds the
// jobs of an observed node.
package observe

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
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Duty rejects a plan by which a node would begin or cease to be observed while jobs run by
// the other rules. InForce is the plan in force, nil before the first. Before says that the
// agent before this one left another plan than an observed one.
func Duty(inForce *plan.Plan, next plan.Plan, before bool, p config.Paths) error {
	switch {
	case inForce != nil && inForce.Observe && !next.Observe:
		return errors.New(`the node is observed (mode = "observe") and would offer its GPUs from now on: drain it ` +
			`(condor_drain), then systemctl restart gpuslotd condor`)
	case inForce != nil && !inForce.Observe && next.Observe:
		return errors.New(`mode = "observe" leaves the node as it is, and this one is set up for another mode: ` + leaveFirst)
	case inForce == nil && next.Observe:
		if left := setUp(p, before); len(left) > 0 {
			return fmt.Errorf(`mode = "observe" leaves the node as it is, but an earlier mode's set-up still stands (%s): %s`,
				strings.Join(left, ", "), leaveFirst)
		}
	}
	return nil
}

// leaveFirst is how a node is handed back.
const leaveFirst = "drain it (condor_drain), stop gpuslotd.socket and gpuslotd.service, run gpuslotd --release, " +
	"then systemctl start gpuslotd.socket gpuslotd and systemctl restart condor"

// setUp are the files of an earlier mode's set-up: with them HTCondor does not do what the
// site has configured.
func setUp(p config.Paths, before bool) (left []string) {
	if before {
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
	return left
}

// Refuse is the answer to whoever would keep jobs from an observed node; nil on others.
func Refuse(p *plan.Plan) error {
	if !p.Observe {
		return nil
	}
	return errors.New(`this node is observed (mode = "observe"): gpuslot keeps no job from it; use HTCondor's own ` +
		`condor_drain or condor_off`)
}

// Jobs finds the jobs of an observed node.
type Jobs struct {
	Node starter.Node
	// Observed says whether the node is observed now, and how often to look.
	Observed func() (observed bool, every time.Duration)
	// Discover takes the starters that are new.
	Discover func(found []starter.Starter)
}

// Run looks for jobs until the context ends.
func (j Jobs) Run(ctx context.Context) {
	seen := &starter.Arrivals{}
	for ctx.Err() == nil {
		observed, every := j.Observed()
		if observed {
			found, _ := seen.New(j.Node, time.Now()) // the next look finds the others
			j.Discover(found)
		}
		_ = backoff.Wait(ctx, every) // the loop looks at the context
	}
}

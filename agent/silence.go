package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
)

// silentAfter is how long the startd may leave the agent unasked: START believes an
// answer for as long (condor's GPUSLOT_FRESH), and it asks every 15 s.
const silentAfter = 60 * time.Second

// silence is for how long the startd has not asked which GPUs take jobs, so that none
// does; 0 if it asks. It is not known before it asked or was silent for long enough, and
// where nobody expects it to ask: on an observed node and one that is out of service,
// before its configuration is there, and while it does not answer.
func (a *Agent) silence(v *view, now time.Time) (d time.Duration, known bool) {
	said := a.startds.Said()
	if !v.planned || !v.written || v.plan.Observe || len(v.plan.GPUs) == 0 || !v.config.HTCondor.Manage {
		return 0, false
	}
	if a.closures.Node().Phase != closures.Serving || said.Err != nil || said.Answers.IsZero() {
		return 0, false
	}
	asked := a.feedback.TookAt(api.OpMonitor)
	d = silentFor(asked, said.Answers, now)
	return d, d > 0 || !asked.IsZero()
}

// silentFor counts from the startd's last question, or from its first answer to the
// agent if it never asked.
func silentFor(asked, answers, now time.Time) time.Duration {
	if asked.Before(answers) {
		asked = answers
	}
	if d := now.Sub(asked); d > silentAfter {
		return d
	}
	return 0
}

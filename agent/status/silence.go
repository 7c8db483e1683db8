package status

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
)

// silentAfter is how long the startd may leave the agent unasked: START believes an
// answer for as long (condor's GPUSLOT_FRESH), and it asks every 15 s.
const silentAfter = 60 * time.Second

// silence is for how long the startd has not asked which GPUs take jobs, so that none
// does; 0 if it asks. It is not known before the startd asked or was silent for long enough.
// It is also not known where the startd is not expected to ask: on an observed node and one
// that is out of service, before its configuration is there, and while it does not answer.
func (r *Reader) silence(s *Snapshot) (d time.Duration, known bool) {
	if !s.Planned || !s.Written || s.Plan.Observe || len(s.Plan.GPUs) == 0 || !s.Config.HTCondor.Manage {
		return 0, false
	}
	if s.Phase.Phase != closures.Serving || s.Startds.Err != nil || s.Startds.Answers.IsZero() {
		return 0, false
	}
	asked := r.Feedback.TookAt(api.OpMonitor)
	d = silentFor(asked, s.Startds.Answers, s.At)
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

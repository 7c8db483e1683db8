package agent

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/condor"
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

// silentSays is what a GPU waits for meanwhile.
func silentSays(d time.Duration) string {
	return fmt.Sprintf("the startd has not asked for %s whether it takes jobs, and START lets none in without an "+
		"answer", d.Round(time.Second))
}

// errors are complete sentences on what keeps jobs from the GPUs, or lets them past
// gpuslot, and on what the site's configuration has to do with it.
func (a *Agent) errors(v *view, now time.Time) []string {
	var out []string
	d, _ := a.silence(v, now)
	if d > 0 {
		out = append(out, fmt.Sprintf("No GPU takes jobs: the startd has not asked for %s which ones "+
			"do.", d.Round(time.Second)))
	}
	known := false
	for _, o := range v.overridden {
		if o.Breaks != condor.BreaksNothing {
			out, known = append(out, o.Says+"."), true
		}
	}
	if d > 0 && !known {
		out[0] += " See STARTD_CRON_GPUSLOT in the StartLog, and condor_config_val -verbose STARTD_CRON_JOBLIST."
	}
	return out
}

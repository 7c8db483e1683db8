package main

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
)

// observedChecks are the checks of a node in mode "observe", where hook, slots and
// control daemons are absent on purpose.
func observedChecks() []func(facts) []finding {
	return []func(facts) []finding{checkConfiguration, checkAgent, checkUntouched, checkJobsTold, checkObservedJob, checkRoot}
}

// checkUntouched looks for what another mode left in HTCondor's configuration.
func checkUntouched(f facts) []finding {
	const check = "HTCondor"
	if f.settingsErr != nil {
		return unchecked(check, oneSentence(f.settingsErr.Error()), "condor_config_val -config")
	}
	if _, ours := f.settings[settingOpen]; ours {
		return []finding{{levelError, check, settingOpen + ` is defined: HTCondor is set up for another mode than "observe"`,
			"Its START asks for an agent that gives no GPU out, so no job starts there.",
			fmt.Sprintf("gpuslotd --release, with gpuslotd stopped; or take %s out of the configuration; then systemctl restart condor", f.config.Paths.CondorConfig)}}
	}
	return fine(check, "HTCondor's configuration has nothing of gpuslot")
}

// checkJobsTold looks whether the running jobs could be assigned to GPUs.
func checkJobsTold(f facts) []finding {
	const check = "jobs"
	if f.statusErr != nil {
		return nil // said by checkAgent
	}
	var unknown []string
	jobs := 0
	for _, g := range f.status.GPUs {
		jobs += len(g.Jobs)
		if blind(g) {
			unknown = append(unknown, fmt.Sprint(g.Index))
		}
	}
	if len(unknown) > 0 {
		return []finding{{levelWarning, check, "GPU " + strings.Join(unknown, ", ") + ": its VRAM is not known, so no record will say what its jobs need",
			"The driver does not list the processes of this GPU.", "see nvidia-smi on the node, and docs/operations.md, \"What jobs use\""}}
	}
	return fine(check, "%d GPU jobs are observed", jobs)
}

// checkObservedJob says whether a job ran as without gpuslot, and was seen.
func checkObservedJob(f facts) []finding {
	if found, done := notRun(f.job); done {
		return found
	}
	c := parseContract(f.job.said)
	var found []finding
	add := func(what, why, do string) {
		found = append(found, finding{levelError, checkOneJob, what, why, do})
	}
	if c.env["CUDA_VISIBLE_DEVICES"] == "" {
		add("HTCondor gave it no GPU: CUDA_VISIBLE_DEVICES is not set", "The site's own set-up of GPUs does not do what it should.", "condor_status -gpus; use feature:GPUs, or what the site has in its place")
	}
	if c.env["GPUSLOT_GPU"] != "" || strings.Contains(c.parent, "gpuslot") {
		add("it met gpuslot: its parent is "+c.parent, `In mode "observe" HTCondor and its jobs have nothing of gpuslot.`, "gpuslotd --release, with gpuslotd stopped; then systemctl restart condor")
	}
	if !f.job.recorded {
		add("the agent keeps no record of it", "What jobs use here is lost.", "journalctl -u gpuslotd, and docs/operations.md, \"Observe first\"")
	}
	if len(found) == 0 {
		return fine(checkOneJob, "a job in %s ran as without gpuslot, and its record is there", c.env["_CONDOR_SLOT"])
	}
	return found
}

func blind(g api.StatusGPU) bool { return len(g.Jobs) > 0 && g.UseMiB == nil }

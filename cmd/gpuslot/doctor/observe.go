package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// observedChecks are the checks of a node in mode "observe", where hook, slots and
// control daemons are absent on purpose.
func observedChecks() []func(facts) []Finding {
	return []func(facts) []Finding{checkConfiguration, checkAgent, checkUntouched, checkJobAttributes, checkJobsTold,
		checkObservedJob, checkRoot}
}

// checkUntouched looks for what another mode left in HTCondor's configuration.
func checkUntouched(f facts) []Finding {
	const check = "HTCondor"
	if f.settingsErr != nil {
		return unchecked(check, show.OneLine(f.settingsErr.Error()), seeSettings)
	}
	if _, ours := f.settings[settingOpen]; ours {
		return []Finding{{Error, check, settingOpen + ` is defined: HTCondor is set up for another mode than "observe"`,
			"Its START asks for an agent that gives no GPU out, so no job starts there.",
			fmt.Sprintf("gpuslotd --release, with gpuslotd stopped; or take %s out of the configuration; "+
				"then systemctl restart condor", f.config.Paths.CondorConfig())}}
	}
	return fine(check, "HTCondor's configuration has nothing of gpuslot")
}

// settingJobAttributes are the job's attributes that the startd publishes beside its own.
const settingJobAttributes = "STARTD_JOB_ATTRS"

// toldAttributes are those that records take from there: no hook passes them on.
const toldAttributes = "Cmd JobBatchName RequestGPUs RequestCpus RequestMemory RequestVRAM WantDocker AcctGroup " +
	"x509UserProxyVOName"

// checkJobAttributes looks whether the startd shows what records and advice go by.
func checkJobAttributes(f facts) []Finding {
	const check = "job attributes"
	if f.settingsErr != nil {
		return nil // said by checkUntouched
	}
	told := condorWords(f.settings[settingJobAttributes])
	var missing []string
	for name := range strings.FieldsSeq(toldAttributes) {
		if !slices.ContainsFunc(told, func(s string) bool { return strings.EqualFold(s, name) }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return []Finding{{Note, check, fmt.Sprintf("%s is without %s", settingJobAttributes, strings.Join(missing, " ")),
			"Records do not say what the startd does not tell of a job: " +
				"its program, its virtual organisation, what it asked for. Without the program gpuslot advise takes all jobs " +
				"of a user for one class.",
			fmt.Sprintf("%[1]s = $(%[1]s) %s in HTCondor's configuration, then condor_reconfig", settingJobAttributes,
				strings.Join(missing, " "))}}
	}
	return fine(check, "the startd publishes what records need")
}

// checkJobsTold looks whether the running jobs could be assigned to GPUs.
func checkJobsTold(f facts) []Finding {
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
		return []Finding{{Warning, check, "GPU " + strings.Join(unknown, ", ") +
			": its VRAM is not known, so no record will say what its jobs need",
			"The driver does not list the processes of this GPU.",
			"see nvidia-smi on the node, and docs/operations.md, \"What jobs used\""}}
	}
	return fine(check, "%d GPU jobs are observed", jobs)
}

// checkObservedJob says whether a job ran as without gpuslot, and was seen.
func checkObservedJob(f facts) []Finding {
	if found, done := notRun(f.job); done {
		return found
	}
	c := parseContract(f.job.said)
	var found []Finding
	add := func(what, why, do string) {
		found = append(found, Finding{Error, checkOneJob, what, why, do})
	}
	if c.env["CUDA_VISIBLE_DEVICES"] == "" {
		add("HTCondor gave it no GPU: CUDA_VISIBLE_DEVICES is not set",
			"The site's own set-up of GPUs does not do what it should.",
			"condor_status -gpus; use feature:GPUs, or what the site has in its place")
	}
	if c.env["GPUSLOT_GPU"] != "" || strings.Contains(c.parent, "gpuslot") {
		add("it met gpuslot: its parent is "+c.parent, `In mode "observe" HTCondor and its jobs have nothing of gpuslot.`,
			"gpuslotd --release, with gpuslotd stopped; then systemctl restart condor")
	}
	if !f.job.recorded {
		add("the agent keeps no record of it", "What jobs use here is lost.",
			"journalctl -u gpuslotd, and docs/operations.md, \"Observe first\"")
	}
	if len(found) == 0 {
		return fine(checkOneJob, "a job in %s ran as without gpuslot, and its record is there", c.env["_CONDOR_SLOT"])
	}
	return found
}

func blind(g api.StatusGPU) bool { return len(g.Jobs) > 0 && g.UseMiB == nil }

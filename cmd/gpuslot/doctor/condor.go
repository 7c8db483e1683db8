package doctor

import (
	"fmt"
	"path"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor"
)

// HTCondor's settings that the checks look at.
const (
	settingOpen         = "GPUSLOT_OPEN"
	settingHook         = "GPUSLOT_HOOK_PREPARE_JOB"
	settingScratch      = "MOUNT_UNDER_SCRATCH"
	settingSharedMemory = "MOUNT_PRIVATE_DEV_SHM"
)

// Those of a slot type.
func startOf(number int) string { return fmt.Sprintf("SLOT_TYPE_%d_START", number) }
func keywordOf(number int) string {
	return fmt.Sprintf("slot_type_%d.STARTER_JOB_HOOK_KEYWORD", number)
}
func wrapperOf(number int) string { return fmt.Sprintf("slot_type_%d.USER_JOB_WRAPPER", number) }

func checkVersion(f facts) []Finding {
	const check = "HTCondor"
	if f.versionErr != nil {
		return unchecked(check, show.OneLine(f.versionErr.Error()),
			fmt.Sprintf("install HTCondor %s or later, or run doctor where condor_version is in PATH", condor.Oldest))
	}
	warning, err := condor.Check(f.version)
	switch {
	case err != nil:
		return []Finding{{Error, check, err.Error(), "Its startd cannot offer shares of a GPU.",
			fmt.Sprintf("upgrade HTCondor to %s or later", condor.Oldest)}}
	case warning != "":
		return []Finding{{Warning, check, warning, "", "compare condor_status -gpus with gpuslot status"}}
	}
	return fine(check, "HTCondor %s carries shares of GPUs", f.version)
}

// checkIDs holds what the startd counts against what the agent offers.
func checkIDs(f facts) []Finding {
	const check = "GPU ids"
	switch {
	case f.planErr != nil:
		return unchecked(check, "which GPUs are shared is not known", "see the finding about the configuration")
	case f.totalErr != nil:
		return unchecked(check, show.OneLine(f.totalErr.Error()), "systemctl status condor")
	case f.unset(), f.statusErr == nil && len(f.status.Changes) > 0:
		return nil // said by checkGuards, or by the agent with the jobs that run there
	}
	var offered int64
	for _, g := range f.plan.GPUs {
		if g.Shared() {
			offered += int64(g.Shares)
		} else {
			offered++
		}
	}
	if f.totalGPUs == offered {
		return fine(check, "the startd counts all %d ids of the inventory", offered)
	}
	return []Finding{{Error, check, fmt.Sprintf("the startd counts %d GPUs, the inventory has %d ids",
		f.totalGPUs, offered),
		"It forgets repeated ids (HTCondor 23.8.1 to 23.10.29), or runs with an older plan or another inventory: " +
			"shares are missing, or there are too many.",
		"condor_restart -peaceful -daemon STARTD; " +
			"if that does not help, see that condor_config_val MACHINE_RESOURCE_INVENTORY_GPUs names gpuslot-condor"}}
}

// seeSettings is what to do where HTCondor's configuration cannot be read.
const seeSettings = "see what condor_config_val -config prints; HTCondor's commands must be in PATH"

// unknownSettings is the finding where HTCondor's configuration cannot be read.
func unknownSettings(f facts, check string) []Finding {
	switch {
	case f.settingsErr != nil:
		return unchecked(check, show.OneLine(f.settingsErr.Error()), seeSettings)
	case f.planErr != nil:
		return unchecked(check, "which GPUs are shared is not known", "see the finding about the configuration")
	}
	return nil
}

// checkGuards looks for the parts of START that keep jobs from closed GPUs.
func checkGuards(f facts) []Finding {
	const check = "START"
	if found := unknownSettings(f, check); found != nil {
		return found
	}
	shared := f.shared()
	if len(shared) == 0 {
		return fine(check, "no GPU is shared")
	}
	if f.unset() {
		return []Finding{notRead(f, check)}
	}
	var found []Finding
	for _, i := range f.slotTypes() {
		if !strings.Contains(f.settings[startOf(i)], "GPUAccept") {
			found = append(found, Finding{Error, check,
				fmt.Sprintf("%s does not ask for GPUAccept", startOf(i)),
				"Jobs then match a GPU whose control daemon does not answer, and are requeued again and again.",
				fmt.Sprintf("see where condor_config_val -verbose %s finds it, and take that line out; HTCondor reads %s for it",
					startOf(i), f.config.Paths.CondorConfig())})
		}
	}
	if len(found) == 0 {
		return fine(check, "the slots of all %d shared GPUs ask the agent", len(shared))
	}
	return found
}

// notRead says why HTCondor reads nothing that the agent generates.
func notRead(f facts, check string) Finding {
	file := f.config.Paths.CondorConfig()
	switch {
	case f.away():
		return Finding{Note, check, "HTCondor has nothing of gpuslot: " + f.status.Node.Headline(), "",
			"gpuslot node resume, then condor_restart -peaceful -startd"}
	case f.generatedErr != nil && f.config.HTCondor.Manage && f.statusErr == nil:
		return Finding{Error, check, "gpuslotd has not written " + file + " yet",
			"HTCondor offers none of its GPUs, or as it does without gpuslot.",
			"see the finding about the agent, then condor_restart -startd"}
	case f.generatedErr != nil && f.config.HTCondor.Manage:
		return Finding{Error, check, "gpuslotd has not set this node up: there is no " + file,
			"HTCondor gives out its GPUs as it does without gpuslot, or none.",
			"systemctl enable --now gpuslotd, then condor_restart -startd"}
	case f.generatedErr != nil:
		return Finding{Error, check, settingOpen + " is not defined, and htcondor.manage = false leaves that to the site",
			"HTCondor gives out its GPUs as it does without gpuslot, or none.",
			"put what gpuslot condor-config prints where HTCondor reads it, then condor_restart -startd"}
	}
	return Finding{Error, check, settingOpen + " is not defined, although " + file + " is there",
		"HTCondor does not read what the agent generates: it offers no shares, or gives jobs to GPUs that take none.",
		fmt.Sprintf("restore /usr/share/condor/config.d/50-gpuslot.conf, or add to the configuration: include ifexist : "+
			"%s; then systemctl restart condor", file)}
}

func checkHooks(f facts) []Finding {
	const check = "hook"
	if found := unknownSettings(f, check); found != nil || f.unset() {
		return found
	}
	var found []Finding
	for _, i := range f.slotTypes() {
		switch keyword, ok := f.settings[keywordOf(i)]; {
		case !ok || keyword == "":
			found = append(found, Finding{Error, check, fmt.Sprintf("%s is not set", keywordOf(i)),
				"Jobs start without budget and limits.", fmt.Sprintf("%s = GPUSLOT", keywordOf(i))})
		case !strings.EqualFold(keyword, "GPUSLOT"):
			found = append(found, Finding{Warning, check,
				fmt.Sprintf("%s is %s, not GPUSLOT", keywordOf(i), keyword),
				"Jobs get budget and limits only if that hook calls ours.",
				fmt.Sprintf("chain %s/prepare in that hook, or set %s = GPUSLOT", f.config.Paths.Libexec, keywordOf(i))})
		}
	}
	if len(f.shared()) == 0 {
		return fine(check, "no GPU is shared")
	}
	ours := path.Join(f.config.Paths.Libexec, "prepare")
	if f.prepareErr != nil {
		found = append(found, Finding{Error, check, show.OneLine(f.prepareErr.Error()),
			"HTCondor holds each job whose hook it cannot start.", "install the package gpuslot again"})
	}
	if now := f.settings[settingHook]; now != ours {
		found = append(found, Finding{Warning, check, fmt.Sprintf("%s is %s, not %s", settingHook, show.OrDash(now), ours),
			"Jobs get budget and limits only if that program calls ours.", fmt.Sprintf("%s = %s", settingHook, ours)})
	}
	if len(found) == 0 {
		return fine(check, "the slots of %d shared GPUs name the hook", len(f.shared()))
	}
	return found
}

func checkWrappers(f facts) []Finding {
	const check = "job wrapper"
	if !f.config.HTCondor.Supervise {
		return []Finding{{Note, check, "jobs run without a supervisor (htcondor.supervise = false)",
			"The MPS clients of a removed job end by a signal, which may take their neighbours along.",
			"htcondor.supervise = true, with the site's own wrapper in htcondor.job_wrapper"}}
	}
	if found := unknownSettings(f, check); found != nil || f.unset() {
		return found
	}
	if len(f.shared()) == 0 {
		return fine(check, "no GPU is shared")
	}
	ours := path.Join(f.config.Paths.Libexec, "supervise")
	var found []Finding
	for _, i := range f.slotTypes() {
		if now := f.settings[wrapperOf(i)]; now != ours {
			found = append(found, Finding{Warning, check,
				fmt.Sprintf("%s is %s, not %s", wrapperOf(i), show.OrDash(now), ours),
				"The MPS clients of a removed job end by a signal, which may take their neighbours along; " +
					"a job over its budget may end as if it were done.",
				fmt.Sprintf(`%s = %s; a site's own wrapper goes to htcondor.job_wrapper in gpuslot.toml`, wrapperOf(i), ours)})
		}
	}
	if len(found) == 0 {
		return fine(check, "the slots of %d shared GPUs name supervise", len(f.shared()))
	}
	return found
}

// checkScratch looks whether HTCondor hides the pipe directories from jobs.
func checkScratch(f facts) []Finding {
	const check = "pipe root"
	if f.settingsErr != nil {
		return unknownSettings(f, check)
	}
	root, now := f.config.Paths.PipeRoot(), f.settings[settingScratch]
	if strings.ContainsAny(now, "()?") {
		return unchecked(check, fmt.Sprintf("%s is an expression: %s", settingScratch, now),
			"see that it never names "+root+" or what is above it")
	}
	for _, dir := range strings.FieldsFunc(now, func(r rune) bool { return strings.ContainsRune("\", \t", r) }) {
		if dir = path.Clean(dir); dir == "/" || root == dir || strings.HasPrefix(root, dir+"/") {
			return []Finding{{Error, check, fmt.Sprintf("%s hides %s: it names %s", settingScratch, root, dir),
				"Jobs get an empty directory in its place, find no control daemon, and run without a limit or fail.",
				fmt.Sprintf("take %s out of %s, or set paths.run in gpuslot.toml to a directory that no job has of its own", dir,
					settingScratch)}}
		}
	}
	return fine(check, "%s hides no part of %s", settingScratch, root)
}

func checkSharedMemory(f facts) []Finding {
	const check = "/dev/shm"
	if f.settingsErr != nil {
		return unknownSettings(f, check)
	}
	now, ok := f.settings[settingSharedMemory]
	if strings.EqualFold(now, "false") || now == "0" {
		return fine(check, "jobs have the node's own /dev/shm")
	}
	if !ok {
		now = "not set, which means true"
	}
	return []Finding{{Note, check, fmt.Sprintf("each job has a /dev/shm of its own (%s: %s)", settingSharedMemory, now),
		"MPS clients share memory with their server, by named regions in /dev/shm as it seems in drivers 535 to 555; " +
			"whether they need the node's own is not settled.",
		fmt.Sprintf("run gpuslot verify and a CUDA job; if only the job cannot attach: %s = false", settingSharedMemory)}}
}

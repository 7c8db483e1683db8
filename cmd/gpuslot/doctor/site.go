package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor"
)

// Settings of the site's that may take something away from gpuslot.
const (
	settingInventory  = "MACHINE_RESOURCE_INVENTORY_GPUs"
	settingIDs        = "MACHINE_RESOURCE_GPUs"
	settingHide       = "STARTER_HIDE_GPU_DEVICES"
	settingJobExit    = "GPUSLOT_HOOK_JOB_EXIT"
	settingDedicated  = "DEDICATED_EXECUTE_ACCOUNT_REGEXP"
	settingDaemons    = "DAEMON_LIST"
	settingTransforms = "JOB_TRANSFORM_NAMES"
	settingDocker     = "DOCKER"
	settingBinds      = "SINGULARITY_BIND_EXPR"
	settingPlugins    = "FILETRANSFER_PLUGINS"
	settingLogins     = "ENABLE_SSH_TO_JOB"
)

// siteSettings are those above, and those of the startds.
var siteSettings = []string{settingInventory, settingIDs, settingHide, settingJobExit, settingDedicated, settingDaemons,
	settingStartds, settingTransforms, settingDocker, settingBinds, settingPlugins, settingLogins}

// onShared is what keeps a check of HTCondor's settings from being made, or
// what there is to say where no GPU is shared.
func onShared(f facts, check string) (done bool, found []Finding) {
	if found := unknownSettings(f, check); found != nil || f.unset() {
		return true, found
	}
	if len(f.shared()) == 0 {
		return true, fine(check, "no GPU is shared")
	}
	return false, nil
}

// checkInventory looks whether the GPUs that HTCondor offers are ours.
func checkInventory(f facts) []Finding {
	const check = "inventory"
	if done, found := onShared(f, check); done {
		return found
	}
	ours := fmt.Sprintf("%s/gpuslot-condor inventory %s", f.config.Paths.Libexec, f.config.Paths.InventoryAds())
	if ids, ok := f.settings[settingIDs]; ok {
		return []Finding{{Error, check, fmt.Sprintf("%s is set: %s", settingIDs, ids),
			"HTCondor then takes these ids without their properties: " +
				"jobs get NVIDIA_VISIBLE_DEVICES=none, and all device nodes are hidden from them.",
			fmt.Sprintf("take %s out; see where condor_config_val -verbose %s finds it", settingIDs, settingIDs)}}
	}
	if now := f.settings[settingInventory]; now != ours {
		return []Finding{{Error, check, fmt.Sprintf("%s is %s, not %s", settingInventory, show.OrDash(now), ours),
			"HTCondor offers other GPU ids than the slots of gpuslot ask for, as after use feature:GPUs.",
			fmt.Sprintf("behind that line: %s = %s; then condor_restart -startd", settingInventory, ours)}}
	}
	return fine(check, "HTCondor offers the GPUs that gpuslot lists")
}

// checkHiding says which device nodes jobs see.
func checkHiding(f facts) []Finding {
	const check = "device nodes"
	if done, found := onShared(f, check); done {
		return found
	}
	if now := f.settings[settingHide]; strings.EqualFold(now, "false") || now == "0" {
		return []Finding{{Warning, check, settingHide + " is " + now,
			"Each job can open the device nodes of all GPUs of the node.", settingHide + " = true"}}
	}
	var ids []string
	for _, g := range f.shared() {
		if g.UUID.IsMIG() {
			ids = append(ids, string(g.UUID))
		}
	}
	if len(ids) > 0 {
		return []Finding{{Note, check, "HTCondor hides nothing from jobs on " + strings.Join(ids, ", "),
			"By its source one id that is no whole GPU's empties the list of what to hide, " +
				"so these jobs can open every GPU's device nodes.",
			"where that must not be: jobs on whole GPUs, or mig_mps = false"}}
	}
	return fine(check, "%s is not off", settingHide)
}

// checkAccounts looks for accounts that make the jobs of one GPU wait for each
// other, and for those whose end takes the MPS server along.
func checkAccounts(f facts) []Finding {
	const check = "accounts"
	if done, found := onShared(f, check); done {
		return found
	}
	var found []Finding
	if now := f.settings[settingDedicated]; now != "" {
		found = append(found, Finding{Warning, check, fmt.Sprintf("%s is %s", settingDedicated, now),
			"At a job's end HTCondor kills all processes of such an account, the MPS server that runs as it included, " +
				"and with it the neighbours' work.",
			"take it out: cgroups find the processes of a job without it"})
	}
	one := func(policy config.TenancyPolicy) bool { return policy == config.TenancyOneAtATime }
	names := distinct(f.slotUsers)
	for _, g := range f.served() {
		if one(g.Tenancy.Policy) && len(names) > 1 {
			found = append(found, Finding{Warning, check,
				fmt.Sprintf("jobs in different slots run as different accounts (%s)", strings.Join(names, ", ")),
				`MPS serves one account at a time, so with tenancy = "one-at-a-time" the jobs of a GPU run one after the other.`,
				fmt.Sprintf(
					`one account for all of them and tenancy = "common:<user>"; or tenancy = "multi-user" (driver %d on)`,
					plan.MultiUser.Branch,
				)})
			break
		}
	}
	if len(found) == 0 {
		return fine(check, "no setting gives each slot an account of its own")
	}
	return found
}

// distinct are the values in order.
func distinct(m map[string]string) []string {
	var all []string
	for _, v := range m {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

func checkJobExit(f facts) []Finding {
	const check = "job exit hook"
	if done, found := onShared(f, check); done {
		return found
	}
	if now := f.settings[settingJobExit]; now != "" {
		return []Finding{{Error, check, fmt.Sprintf("%s is %s", settingJobExit, now),
			"With file transfer a job then never finishes: it runs again and again (HTCondor 25.14.1).",
			"take " + settingJobExit + " out"}}
	}
	return fine(check, "%s is not set", settingJobExit)
}

// checkContainers looks whether HTCondor's own containers get their pipe directory, and count to their jobs.
func checkContainers(f facts) []Finding {
	const check = "containers"
	if done, found := onShared(f, check); done {
		return found
	}
	const why = "Containers without the pipe directory compute beside MPS: no limit holds, or they get no GPU."
	var found []Finding
	if now := f.settings[settingDocker]; now != "" {
		found = append(found, Finding{Warning, check,
			fmt.Sprintf("%s is %s, so that HTCondor runs docker jobs on shared GPUs", settingDocker, now),
			"Their processes count to no job: no budget holds for them, and gpuslot status names them as those of no job.",
			fmt.Sprintf("take out the line that condor_config_val -verbose %s finds", settingDocker)})
	}
	if now := f.settings[settingBinds]; !f.config.HTCondor.Supervise && !strings.Contains(now, f.config.Paths.PipeRoot()) {
		found = append(found, Finding{Warning, check,
			fmt.Sprintf("%s is %s, without the pipe directory", settingBinds, show.OrDash(now)), why,
			fmt.Sprintf("%s = strcat(<yours>, $(GPUSLOT_BIND_EXPR)), or htcondor.supervise = true", settingBinds)})
	}
	if len(found) == 0 {
		return fine(check, "HTCondor starts no docker, and its settings name the pipe directory, or supervise does")
	}
	return found
}

// checkRenders names nodes for graphics by which accounts may take VRAM that nothing limits.
func checkRenders(f facts) []Finding {
	const check = "render nodes"
	if done, found := onShared(f, check); done {
		return found
	}
	if len(f.renders) == 0 {
		return fine(check, "not all accounts can open a node for graphics, or gpuslotd closes it to jobs; "+
			"gpuslot status warns if not")
	}
	return []Finding{{Warning, check, "all accounts can open " + strings.Join(f.renders, ", "),
		"Jobs and logins may take VRAM by them, by the driver's source: no limit holds, and NVML lists no process.",
		`a rule for udev: SUBSYSTEM=="drm", DRIVERS=="nvidia", MODE="0600"; or load nvidia_drm with modeset=0`}}
}

// checkOutside names what lets users run code of their own in the cgroup of HTCondor's daemons.
func checkOutside(f facts) []Finding {
	const check = "outside the cgroup"
	if found := unknownSettings(f, check); found != nil || f.unset() {
		return found
	}
	var ways, do []string
	for _, plugin := range condorWords(f.settings[settingPlugins]) {
		if path.Ext(plugin) == ".py" {
			ways = append(ways, "the file transfer plugin "+plugin)
		}
	}
	if len(ways) > 0 {
		do = append(do, "let the plugins start with python3 -I, or take them out of "+settingPlugins)
	}
	if now := f.settings[settingLogins]; !strings.EqualFold(now, "false") && now != "0" {
		ways, do = append(ways, "condor_ssh_to_job"),
			append(do, settingLogins+" = false, if your users need no logins to jobs")
	}
	if len(ways) == 0 {
		return fine(check, "neither logins to jobs nor file transfer plugins in Python")
	}
	return []Finding{{Note, check, "users' code can run outside the job's cgroup, by " + strings.Join(ways, ", "),
		"No limit holds there, and whole GPUs are open to such code. " +
			"gpuslotd closes the device nodes of shared GPUs and of MIG devices to it, unless gpuslot status warns.",
		strings.Join(do, "; ")}}
}

// checkAccessPoint looks for the transforms where users submit on this machine.
func checkAccessPoint(f facts) []Finding {
	const check = "access point"
	if f.settingsErr != nil {
		return unknownSettings(f, check)
	}
	if !slices.Contains(condorWords(f.settings[settingDaemons]), "SCHEDD") {
		return fine(check, "%s has no SCHEDD", settingDaemons)
	}
	if !slices.Contains(condorWords(f.settings[settingTransforms]), condor.RoundTransform) {
		return []Finding{{Warning, check, fmt.Sprintf("%s has no %s", settingTransforms, condor.RoundTransform),
			"Requests are neither rounded nor refused with a reason: " +
				"what no GPU has stays idle, and many different requests make the negotiator slow.",
			"gpuslot condor-config --for access-point > /etc/condor/config.d/60-gpuslot, " +
				"and into what manages that directory; then condor_reconfig"}}
	}
	return fine(check, "%s has %s", settingTransforms, condor.RoundTransform)
}

// condorWords splits one of HTCondor's lists.
func condorWords(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(", \t\n", r) })
}

// slotUserPattern finds the accounts of single dynamic slots.
const slotUserPattern = `^SLOT[0-9]+_[0-9]+_USER$`

// parseSlotUsers reads what condor_config_val -dump prints: NAME = value.
func parseSlotUsers(dump string) map[string]string {
	users := map[string]string{}
	for line := range strings.Lines(dump) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		name = strings.ToUpper(strings.TrimSpace(name))
		if matched, _ := path.Match("SLOT[0-9]*_[0-9]*_USER", name); ok && matched && strings.TrimSpace(value) != "" {
			users[name] = strings.TrimSpace(value)
		}
	}
	return users
}

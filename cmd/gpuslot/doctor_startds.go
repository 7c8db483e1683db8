package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
)

// Where the generated configuration names the GPUs' startds, and the lists that
// it adds them to.
const (
	settingStartds    = "GPUSLOT_STARTDS"
	settingDaemonCore = "DC_DAEMON_LIST"
)

// checkStartds looks whether the condor_master starts the GPUs' startds: a site
// that sets a list of daemons as a whole, behind the generated file, loses them.
func checkStartds(f facts) []finding {
	const check = "startds"
	if f.config.HTCondor.Layout != config.LayoutStartdPerGPU {
		return fine(check, "one startd has all GPUs")
	}
	if done, found := onShared(f, check); done {
		return found
	}
	ours := condorWords(f.settings[settingStartds])
	if len(ours) == 0 {
		return []finding{{levelError, check, settingStartds + " is not defined", "HTCondor has not read the generated file, or another one: no GPU has a startd.",
			"see the finding on START; then condor_reconfig"}}
	}
	var found []finding
	for setting, why := range map[string]string{
		settingDaemons:    "The condor_master does not start them: nobody is offered their GPUs.",
		settingDaemonCore: "The condor_master does not talk to them as to HTCondor's own daemons: they do not read changes, nor restart when their jobs have ended.",
	} {
		now := condorWords(f.settings[setting])
		missing := slices.DeleteFunc(slices.Clone(ours), func(name string) bool { return slices.Contains(now, name) })
		if len(missing) > 0 {
			found = append(found, finding{levelError, check, fmt.Sprintf("%s has no %s", setting, strings.Join(missing, ", ")), why,
				fmt.Sprintf("behind that line, which condor_config_val -verbose %s finds: %s = $(%s) $(%s); then condor_reconfig", setting, setting, setting, settingStartds)})
		}
	}
	if len(found) == 0 {
		return fine(check, "the condor_master knows the startds of %d GPUs", len(ours))
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.What, b.What) })
	return found
}

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
)

// settingStartds is where the generated configuration names the GPUs' startds.
const settingStartds = "GPUSLOT_STARTDS"

// checkStartds looks whether the condor_master starts the GPUs' startds: a site
// that sets a list of daemons as a whole, behind the generated file, loses them.
func checkStartds(f facts) []Finding {
	const check = "startds"
	if f.config.HTCondor.Layout != config.LayoutStartdPerGPU {
		if f.planErr != nil {
			return unchecked(check, "which GPUs are shared is not known", "see the finding about the configuration")
		}
		return fine(check, "the configuration has one startd for all GPUs")
	}
	if done, found := onShared(f, check); done {
		return found
	}
	ours := condorWords(f.settings[settingStartds])
	if len(ours) == 0 {
		return []Finding{{Error, check, settingStartds + " is not defined",
			"HTCondor has not read the generated file, or another one: no GPU has a startd.",
			"see the finding on START; then condor_reconfig"}}
	}
	now := condorWords(f.settings[settingDaemons])
	missing := slices.DeleteFunc(ours, func(name string) bool { return slices.Contains(now, name) })
	if len(missing) > 0 {
		return []Finding{{Error, check, fmt.Sprintf("%s has no %s", settingDaemons, strings.Join(missing, ", ")),
			"The condor_master does not start them: their GPUs are not offered.",
			fmt.Sprintf("behind that line, which condor_config_val -verbose %s finds: %s = $(%s) $(%s); then condor_reconfig",
				settingDaemons, settingDaemons, settingDaemons, settingStartds)}}
	}
	return fine(check, "the condor_master has the startds of %d GPUs", len(ours))
}

package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// checkDriver says what newer drivers have of what gpuslot can use.
func checkDriver(f facts) []Finding {
	const check = "driver"
	driver := f.inventory.Driver
	if f.inventoryErr != nil || driver == "" {
		return unchecked(check, "NVML reports no version of the driver", "see what nvidia-smi says")
	}
	level, lines, newest := Note, []string{fmt.Sprintf("driver %s lacks what newer ones have", driver)}, 0
	for _, feature := range plan.Features() {
		if !feature.Lacks(driver) {
			continue
		}
		if feature == plan.Sharing {
			level = Warning
		}
		lines = append(lines, fmt.Sprintf("driver %d: %s; without it: %s", feature.Branch, feature.Name, feature.Without))
		newest = feature.Branch
	}
	if newest == 0 {
		return fine(check, "driver %s has all that gpuslot can use", driver)
	}
	return []Finding{{level, check, strings.Join(lines, "\n"), "What a driver lacks limits what gpuslot can promise.",
		fmt.Sprintf(`docs/platforms.md, "Driver"; driver %d or newer has all of it`, newest)}}
}

// checkMIG finds GPUs that MIG mode costs more than it gives.
func checkMIG(f facts) []Finding {
	const check = "MIG"
	if f.inventoryErr != nil {
		return unchecked(check, show.OneLine(f.inventoryErr.Error()), "see what nvidia-smi -L says")
	}
	major, _, _ := strings.Cut(f.inventory.Driver, ".")
	driver, _ := strconv.Atoi(major) // 0, any, where it is not known
	var found []Finding
	enabled := 0
	for _, g := range f.inventory.GPUs {
		if g.MIGEnabled {
			enabled++
			found = append(found, checkDivided(check, g, driver)...)
		}
	}
	if enabled > 0 && enabled < len(f.inventory.GPUs) && plan.Mixed.Lacks(f.inventory.Driver) {
		found = append(found, Finding{Warning, check,
			fmt.Sprintf("GPUs in MIG mode stand beside others with driver %s", f.inventory.Driver),
			fmt.Sprintf("Before driver %d one program sees a single MIG device or the other GPUs, never both: "+
				"jobs are not harmed, since each gets one kind, but tools may miss GPUs.", plan.Mixed.Branch),
			fmt.Sprintf("install driver %d or newer", plan.Mixed.Branch) + ", or divide all GPUs of the node or none"})
	}
	for _, r := range f.status.Repartition {
		if r.Error == "" && !r.At.IsZero() && r.Told.IsZero() {
			found = append(found, Finding{Warning, check,
				fmt.Sprintf("repartition = %s, and no access point reports what its jobs wait for", r.Setting),
				"Layouts then stay as they are.", "gpuslot condor-config --for access-point on the machines on which users " +
					"submit, then condor_reconfig"})
		}
	}
	if len(found) == 0 {
		return fine(check, "%d of %d GPUs are in MIG mode", enabled, len(f.inventory.GPUs))
	}
	return found
}

// checkDivided looks at one GPU in MIG mode.
func checkDivided(check string, g gpu.GPU, driver int) []Finding {
	on := fmt.Sprintf("GPU %d: ", g.Index)
	if g.MIGDevices != nil && len(g.MIGDevices) == 0 {
		return []Finding{{Error, check, on + "MIG mode is on without a MIG device",
			"It runs no job, and may hide the node's other GPUs from CUDA.",
			fmt.Sprintf(`set mode = "mig" with a mig_layout, or nvidia-smi -i %s -mig 0`, g.UUID)}}
	}
	chip, err := mig.ModelOf(g, driver)
	if err != nil || len(g.MIGDevices) != 1 {
		return nil // nothing is published of it
	}
	p, err := mig.ProfileNamed(chip, g.MIGDevices[0].Profile)
	if err != nil {
		return nil
	}
	var found []Finding
	for _, w := range mig.Warnings(chip, gpu.Layout{{Profile: p.ID}}) {
		found = append(found, Finding{Warning, check, on + w, "The GPU is divided into one part.",
			`list smaller profiles in mig_layout, or use mode = "mps" or "whole"`})
	}
	return found
}

package plan

import (
	"errors"
	"fmt"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Check holds the plan to what the installed control daemon, driver and kernel were
// found to do: the plan itself is made without asking any. What is not known is let
// through, and its GPU stays closed. Limits are the driver's, on cgroups.
func (p Plan) Check(can mps.Capabilities, limits mps.Answer) error {
	return errors.Join(
		p.without(
			GPU.MultiUser,
			can.MultiUser,
			MultiUser,
			`tenancy = "multi-user", but the installed control daemon (driver %s) serves one account at a time: install `+
				`driver %d or newer, or use tenancy = "one-at-a-time" or "common:<user>"`,
		),
		p.without(
			GPU.Partitioned,
			can.StaticPartitions,
			Partitions,
			`threads = "partitioned", but the installed control daemon (driver %s) has no static SM partitions: install `+
				`driver %d or newer, or use threads = "equal"`,
		),
		p.without(GPU.NeedsLimits, limits, CgroupLimits, `mode = "time-slice", but nothing limits the VRAM of jobs `+
			`(driver %s; %d or newer can): `+limits.How+`; use mode = "mps" or "whole"`),
	)
}

// without names the GPUs that need what the control daemon was found to lack.
func (p Plan) without(needs func(GPU) bool, has mps.Answer, f Feature, sentence string) error {
	if !has.Known || has.Has {
		return nil
	}
	var all []gpu.UUID
	for _, g := range p.GPUs {
		if needs(g) {
			all = append(all, g.UUID)
		}
	}
	if len(all) == 0 {
		return nil
	}
	driver := p.Driver
	if driver == "" {
		driver = "unknown"
	}
	return errors.New(joinUUIDs(all) + ": " + fmt.Sprintf(sentence, driver, f.Branch))
}

package main

import (
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

func migExportCommand(f *flags) *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use:   "export",
		Short: "Print the MIG layout of this node as a mig-parted file",
		Long: `export prints what the GPUs of this node have as a configuration that mig-parted
and "gpuslot mig apply -f" read. Such files count instances and do not say where
they are; --json prints the places, and who made and who uses each instance.

It needs root: the driver shows GPU instances only to root.`,
		Example: `  gpuslot mig export > node.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withExecutor(c, f, false, func(_ mig.Executor, states []gpu.MIGState) error {
				if asJSON {
					return show.JSON(c.OutOrStdout(), states)
				}
				file, warnings := exported(name, states)
				show.Warn(c.ErrOrStderr(), warnings)
				text, err := file.Encode()
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(text)
				return err
			})
		},
	}
	c.Flags().StringVarP(&name, "selected-config", "c", "current", "the `name` of the configuration")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with places")
	return c
}

// exported are the GPUs that can have MIG, those that are alike in one entry.
func exported(name string, states []gpu.MIGState) (mig.Parted, []string) {
	var entries []mig.PartedEntry
	var warnings []string
next:
	for _, s := range states {
		if !s.Capable {
			continue
		}
		counts := map[string]int{}
		for _, i := range s.Instances {
			if !s.Whole(i) {
				warnings = append(warnings, fmt.Sprintf("GPU %d: %s has %d compute instances, which gpuslot does not make: "+
					"it is left out", s.Index, s.Chip.FormatPlace(i.Place), len(i.Compute)))
				continue
			}
			p, _ := s.Chip.Profile(i.Profile)
			counts[p.Name]++
		}
		for k, e := range entries {
			if e.Enabled == s.Enabled && maps.Equal(e.Instances, counts) {
				entries[k].Devices = append(e.Devices, s.Index)
				continue next
			}
		}
		entries = append(entries, mig.PartedEntry{Devices: []int{s.Index}, Enabled: s.Enabled, Instances: counts})
	}
	return mig.Parted{Configs: map[string][]mig.PartedEntry{name: entries}}, warnings
}

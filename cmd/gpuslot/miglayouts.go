package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

func migLayoutsCommand() *cobra.Command {
	var model string
	c := &cobra.Command{
		Use:   "layouts",
		Short: "List the profiles of a model, and the layouts that fill it",
		Long: `layouts lists the MIG profiles of a model with their placements, and all layouts to
which nothing can be added. For each it prints the part of the SMs, the memory and
the memory bandwidth that it gives. PLACINGS is in how many ways the instances can stand.
A dash is what is not published.`,
		Example: `  gpuslot mig layouts --model A100-40
  gpuslot mig layouts --model H100-80`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if model == "" {
				return needs("--model", "write one of "+strings.Join(mig.Models(), ", "))
			}
			chip, err := mig.Model(model, 0)
			if err != nil {
				return show.Usage(err)
			}
			return printLayouts(c.OutOrStdout(), chip)
		},
	}
	c.Flags().StringVar(&model, "model", "", "the `model`, such as A100-40 or \"NVIDIA A100-SXM4-40GB\"")
	return c
}

func printLayouts(w io.Writer, chip gpu.Chip) error {
	all, err := mig.Enumerate(chip)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %d compute slices, %d units of memory, %d layouts\n\n", chip.Model, chip.Slices(),
		chip.Units(), all.Len())
	var profiles show.Table
	profiles.Row("PROFILE", "ID", "SLICES", "STARTS", "UNITS", "MOST", "SMs", "MEMORY/MiB")
	for _, p := range chip.Profiles {
		profiles.Row(p.Name, strconv.Itoa(int(p.ID)), strconv.Itoa(p.Slices), startsOf(p), strconv.Itoa(p.Size),
			strconv.Itoa(p.Max),
			of(int64(p.Multiprocessors), 0, false), of(int64(p.Memory), 0, false))
	}
	profiles.Print(w)
	fmt.Fprintln(w)
	layoutTable(chip, all).Print(w)
	return nil
}

func startsOf(p gpu.Profile) string {
	words := make([]string, len(p.Starts))
	for i, s := range p.Starts {
		words[i] = strconv.Itoa(s)
	}
	return strings.Join(words, ",")
}

// layoutTable has a row for each set of instances, however they stand.
func layoutTable(chip gpu.Chip, all *mig.Layouts) *show.Table {
	type set struct {
		name     string
		cost     mig.Cost
		placings int
	}
	var sets []set
	for l := range all.Maximal() {
		name := mig.FormatCounts(chip, l)
		i := slices.IndexFunc(sets, func(s set) bool { return s.name == name })
		if i < 0 {
			i, sets = len(sets), append(sets, set{name: name, cost: mig.CostOf(chip, l)})
		}
		sets[i].placings++
	}
	t := &show.Table{}
	t.Row("LAYOUT", "SMs", "MEMORY/MiB", "BANDWIDTH", "PLACINGS")
	for _, s := range sets {
		t.Row(append(append([]string{s.name}, costCells(s.cost)...), strconv.Itoa(s.placings))...)
	}
	return t
}

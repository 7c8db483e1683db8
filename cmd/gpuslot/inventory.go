package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
)

func inventoryCommand() *cobra.Command {
	var files []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "inventory",
		Short: "Show the GPUs, CPUs and memory of the node",
		Long: `inventory reads the node through NVML and shows its GPUs in the order of their
PCI addresses. With --json it prints what --inventory reads in every other
verb, so that a node can be planned where one is not logged in to it.

GPUs that do not answer are left out, each with a warning.`,
		Example: `  gpuslot inventory
  gpuslot inventory --json > node.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			inv, unreadable, err := readInventory(c.Context(), files)
			if err != nil {
				return err
			}
			show.Warn(c.ErrOrStderr(), unreadable)
			if !asJSON {
				printInventory(c.OutOrStdout(), inv)
				return nil
			}
			b, err := inv.Encode()
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(b)
			return err
		},
	}
	inventoryFlag(c, &files)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, which --inventory reads")
	return c
}

func printInventory(w io.Writer, inv gpu.Inventory) {
	fmt.Fprintln(w, describeHost(inv.Host, inv.Driver, inv.CUDA))
	if len(inv.GPUs) == 0 {
		fmt.Fprintln(w, "no GPUs")
		return
	}
	var t show.Table
	t.Row("GPU", "UUID", "NAME", "PCI BUS ID", "MEMORY/MiB", "CAPABILITY", "SMs", "COMPUTE MODE", "MIG")
	for _, g := range inv.GPUs {
		t.Row(strconv.Itoa(g.Index), g.UUID.String(), g.Name, g.PCI.String(), show.MiB(g.Memory), g.Capability.String(),
			multiprocessors(g), show.OrDash(string(g.ComputeMode)), migState(g))
	}
	fmt.Fprintln(w)
	t.Print(w)
}

func multiprocessors(g gpu.GPU) string {
	if g.Multiprocessors == 0 {
		return "-"
	}
	return strconv.Itoa(g.Multiprocessors)
}

func migState(g gpu.GPU) string {
	switch {
	case g.MIGEnabled:
		return "on"
	case g.MIGCapable:
		return "off"
	}
	return "-"
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
)

func gpuCommand(f *flags) *cobra.Command {
	c := &cobra.Command{
		Use:   "gpu",
		Short: "Act on a GPU",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(gpuOpen(f))
	return c
}

func gpuOpen(f *flags) *cobra.Command {
	var override bool
	c := &cobra.Command{
		Use:   "open GPU",
		Short: "Open a GPU that an event of the hardware closed",
		Long: `Open lets a GPU take jobs again that an XID or ECC event closed, when what its
reason asks for was done. The agent opens by itself what a reset has mended; a GPU
that is broken by the driver's word opens only so, and only with --override: the
operator's word counts more than the event's. What happens from then on closes
it again. A GPU that its control daemon closes is not opened by anybody's word.

GPU is an index, a UUID or the beginning of one, as "gpuslot status" shows it.
Run it as root.`,
		Example: "  gpuslot gpu open 0 --override",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return ask(c.Context(), c, f, api.Request{Op: api.OpOpen, GPU: args[0], Force: override})
		},
	}
	c.Flags().BoolVar(&override, "override", false, "although the reason still holds")
	return c
}

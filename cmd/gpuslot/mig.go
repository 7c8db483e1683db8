package main

import "github.com/spf13/cobra"

func migCommand(f *flags) *cobra.Command {
	c := &cobra.Command{
		Use:   "mig",
		Short: "Show and change how GPUs are divided into MIG devices",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(migPlanCommand(f), migLayoutsCommand(), migAssertCommand(f), migApplyCommand(f), migExportCommand(f))
	return c
}

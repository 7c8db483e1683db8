package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/here"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func hereCommand(f *flags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "here",
		Short: "Inside a job: show the job's own part of a GPU",
		Long: `here prints what the job of this process holds: the GPU, the VRAM budget, and what
all its processes use of it now. It prints the number of other jobs on the GPU, and
what enforces the budget. It needs no rights and takes no arguments: the kernel
identifies the job to the agent.

In a container, where there is no gpuslot, "gpuslot-condor here" prints the same;
docs/users.md says how to bring it in.

` + here.Help,
		Example: `  gpuslot here
  gpuslot here --json | jq '.gpus[0].budget_mib'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := askHere(c.Context(), f.socket)
			if err != nil {
				return err
			}
			if asJSON {
				err = show.JSON(c.OutOrStdout(), h)
			} else {
				here.Text(c.OutOrStdout(), h)
			}
			if err == nil && len(h.GPUs) == 0 {
				return quits{nil, exitFound}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func askHere(ctx context.Context, socket string) (api.Here, error) {
	reply, err := api.Call(ctx, socket, api.Request{Op: api.OpHere})
	switch {
	case err != nil:
		return api.Here{}, err
	case reply.NoJob:
		return api.Here{}, quits{errors.New(here.NoJob), exitNoJob}
	case reply.Here == nil:
		return api.Here{}, errors.New("gpuslotd answered without what was asked for; install the same version of both")
	}
	return *reply.Here, nil
}

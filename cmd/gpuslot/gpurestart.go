package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
)

// restartPatience is above what the agent itself allows a restart.
const restartPatience = 30 * time.Second

func gpuRestart(f *flags) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "restart GPU",
		Short: "Restart a GPU's control daemon and its MPS server",
		Long: `restart ends the control daemon of one GPU with its MPS servers and starts it
again with its limits. The agent never does that to a daemon that has
clients: their jobs would fail. Without --force neither does this command.

With --force the clients are first asked to leave (terminate_client), so that
none is killed with work in flight; their jobs meet CUDA error 810.

GPU is an index, a UUID or the beginning of one, as "gpuslot status" shows it.
Run it as root.`,
		Example: "  gpuslot gpu restart 0\n  gpuslot gpu restart GPU-5a1e0c11 --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), restartPatience)
			defer cancel()
			return ask(ctx, c, f, api.Request{Op: api.OpRestart, GPU: args[0], Force: force})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "although jobs use it, whose MPS clients then end")
	return c
}

// ask has the agent do something and prints what it did.
func ask(ctx context.Context, c *cobra.Command, f *flags, req api.Request) error {
	reply, err := api.Call(ctx, f.socket, req)
	if err != nil {
		return err
	}
	if reply.Done == "" {
		return errors.New("the agent answered without a result; gpuslot and gpuslotd may be of different versions")
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), reply.Done)
	return err
}

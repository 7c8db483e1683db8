package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/doctor"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func doctorCommand(f *flags) *cobra.Command {
	var asJSON bool
	var jobUser string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node, and print what is wrong and what to change",
		Long: `doctor reads the node and changes nothing: driver and GPUs, the agent, the
control daemons, HTCondor's version, slots and configuration. Each finding says
what, why it matters, and the exact change.

  error     jobs do not run, or run without what gpuslot promises
  warning   something is to be changed, or could not be checked
  note      how it is, and what that means
  ok        checked, nothing found

Everybody may run it, but the agent and its control daemons answer only root. What
could not be asked is "not checked", which is a warning.

With --job it also submits one small GPU job as that user, for this machine. It
checks what gpuslot needs of HTCondor: the cgroup's name, the hook, the supervisor,
the scratch directory, the environment. On an observed node it checks that the job
has nothing of gpuslot, and that the agent keeps a record of it. Run this after an
upgrade of HTCondor. It needs an access point on this machine.

Exit codes: 0 nothing worse than a note, 3 the worst is a warning, 4 the worst is
an error.`,
		Example: `  gpuslot doctor
  gpuslot doctor --job alice
  gpuslot doctor --json | jq '.[] | select(.level == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, f.config)
			if errors.Is(err, fs.ErrNotExist) {
				return err
			}
			found, err := doctor.Examine(c.Context(), doctor.Node{Config: cfg, ConfigErr: err, Socket: f.socket}, jobUser,
				c.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := c.Context().Err(); err != nil {
				return err // what was asked since is unknown for another reason
			}
			if asJSON {
				if err := show.JSON(c.OutOrStdout(), found); err != nil {
					return err
				}
			} else {
				doctor.Print(c.OutOrStdout(), found)
			}
			switch doctor.Worst(found) {
			case doctor.Error:
				return quits{nil, exitErrors}
			case doctor.Warning:
				return quits{nil, exitFound}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&jobUser, "job", "", "run one small GPU job here as `user`, and look at what HTCondor gives it")
	return c
}

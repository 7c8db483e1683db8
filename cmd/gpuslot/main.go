// Command gpuslot is the operator's view of a node whose GPUs are shared: what
// it has, what it would offer, what HTCondor reads, what runs now. What it changes
// it changes by the verbs mig, gpu and node; gpuslotd does the rest. One file a
// verb; start at root.
package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is one call of the program.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	c := root()
	c.SetArgs(args)
	out := &show.Output{Writer: stdout}
	c.SetOut(out)
	c.SetErr(stderr)
	err := c.ExecuteContext(ctx)
	switch {
	case out.Err != nil:
		err = out.Err
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && !hasHint(err):
		err = errors.New("interrupted")
	}
	if q := (quits{}); err != nil && (!errors.As(err, &q) || q.error != nil) {
		show.Error(stderr, err)
	}
	return codeOf(err)
}

// hasHint: the error says what an interruption leaves behind.
func hasHint(err error) bool {
	_, ok := show.HintOf(err)
	return ok
}

// unreadable is the error of a file; only who lacks the right to read it is told to
// take it.
func unreadable(err error, hint string) error {
	if errors.Is(err, fs.ErrPermission) {
		return show.Hint(err, hint)
	}
	return err
}

// flags are those that every verb has.
type flags struct {
	config string
	socket string
}

func root() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:     "gpuslot",
		Version: thisBuild().String(),
		Short:   "See how this node's GPUs are shared among HTCondor jobs",
		Long: `gpuslot shows how the GPUs of an HTCondor worker node are shared: what the node
has, what it would offer, and what runs now. It prints the HTCondor configuration
that follows. Only "gpuslot mig apply" and the commands of "gpuslot gpu" and
"gpuslot node" change something.

Exit codes of all commands:
  0   done
  1   failed
  2   wrong command line; nothing was done
  3   done, with a difference or a finding
  4   doctor: the worst finding is an error
  5   gpu, node: jobs still run
  6   here: this process is in no job`,
		Example: `  gpuslot status
  gpuslot plan
  gpuslot inventory --json > node.json
  gpuslot plan --inventory node.json --job cpus=2,memory=8000,vram=6000`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.SetFlagErrorFunc(flagError)
	c.SetVersionTemplate("gpuslot {{.Version}}\n")
	c.PersistentFlags().StringVar(&f.config, "config", config.DefaultPath,
		"the configuration `file`; without the default one all defaults hold")
	c.PersistentFlags().StringVar(&f.socket, "socket", api.DefaultSocket, "the agent's `socket`")
	c.AddCommand(inventoryCommand(), planCommand(&f), checkConfigCommand(&f), condorConfigCommand(&f), statusCommand(&f),
		topCommand(&f), usageCommand(&f), adviseCommand(&f), whyCommand(&f), hereCommand(&f), verifyCommand(&f),
		benchCommand(&f), doctorCommand(&f), reportCommand(&f),
		gpuCommand(&f), nodeCommand(&f), migCommand(&f), simulateCommand(),
		completionCommand(), versionCommand())
	explainArguments(c)
	return c
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor"
)

// What condor-config writes for.
const (
	forExecutionPoint = "execution-point"
	forAccessPoint    = "access-point"
	forPlainNode      = "plain-node"
	forNegotiator     = "negotiator"
)

func condorConfigCommand(f *flags) *cobra.Command {
	var files []string
	var target, place string
	c := &cobra.Command{
		Use:   "condor-config",
		Short: "Print the HTCondor configuration that follows from the plan",
		Long: `condor-config prints the configuration that HTCondor needs, to stdout.

For the execution point (the worker node) it is what the agent writes itself,
unless htcondor.manage is false: slot types, the guards of START, hook and
monitor.

For the access point (where users submit) it is the transforms that bring
request_vram into the steps that match, and the submit requirements that refuse
what fits no GPU. With growth.retries it also has the rules by which a job that met
its limit runs again with more. It depends on the largest GPU of the pool: give
one recorded inventory per kind of node.

For a plain node, which gives out whole GPUs without gpuslot, it is a VRAM
resource, so that one job description runs on both kinds of nodes.

For the negotiator (the central manager) it is which of several shared GPUs a
job gets: the emptiest, with --placement spread, or the fullest that has room,
with --placement pack.`,
		Example: `  gpuslot condor-config
  gpuslot condor-config --for access-point --inventory v100.json --inventory a100.json > /etc/condor/config.d/50-gpuslot
  gpuslot condor-config --for plain-node > /etc/condor/config.d/90-vram
  gpuslot condor-config --for negotiator --placement pack > /etc/condor/config.d/90-placement`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := condorConfig(c, f, target, place, files)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	inventoryFlag(c, &files)
	c.Flags().StringVar(&target, "for", forExecutionPoint,
		"the `machine` it is for: execution-point, access-point, plain-node or negotiator")
	c.Flags().StringVar(&place, "placement", condor.PlaceSpread, "for the negotiator: the `order`, spread or pack")
	return c
}

func condorConfig(c *cobra.Command, f *flags, target, place string, files []string) ([]byte, error) {
	if err := checkTarget(c, target, place, files); err != nil {
		return nil, err
	}
	switch target {
	case forExecutionPoint:
		n, observed, err := nodeOf(c, f, files)
		if err != nil || observed {
			return nil, err
		}
		return condor.ExecutionPoint(n)
	case forAccessPoint:
		nodes, err := nodesOf(c, f, files)
		if err != nil || len(nodes) == 0 {
			return nil, err
		}
		return condor.AccessPoint(condor.PoolOf(nodes...))
	case forNegotiator:
		return condor.Negotiator(programVersion(), place)
	}
	inv, unreadable, err := readInventory(c.Context(), files)
	if err != nil {
		return nil, err
	}
	show.Warn(c.ErrOrStderr(), unreadable)
	return condor.PlainNode(programVersion(), inv)
}

// checkTarget rejects flags that the machine does not go with.
func checkTarget(c *cobra.Command, target, place string, files []string) error {
	targets := []string{forExecutionPoint, forAccessPoint, forPlainNode, forNegotiator}
	switch {
	case !slices.Contains(targets, target):
		return show.Usage(fmt.Errorf("--for is %q; write one of %s", target, strings.Join(targets, ", ")))
	case target != forNegotiator && c.Flags().Changed("placement"):
		return show.Usage(errors.New("--placement goes with --for negotiator"))
	case target == forNegotiator && len(files) > 0:
		return show.Usage(errors.New("--for negotiator reads no --inventory: its configuration is the same for all nodes"))
	case place != condor.PlaceSpread && place != condor.PlacePack:
		return show.Usage(fmt.Errorf("--placement is %q; write %s or %s", place, condor.PlaceSpread, condor.PlacePack))
	}
	return nil
}

// nodesOf plans a node per file, or this one if there is none. Observed ones are
// left out.
func nodesOf(c *cobra.Command, f *flags, files []string) ([]condor.Node, error) {
	each := [][]string{nil}
	if len(files) > 0 {
		each = slices.Collect(slices.Chunk(files, 1))
	}
	var nodes []condor.Node
	var errs []error
	for _, file := range each {
		n, observed, err := nodeOf(c, f, file)
		if !observed {
			nodes = append(nodes, n)
		}
		errs = append(errs, err)
	}
	return nodes, errors.Join(errs...)
}

// nodeOf plans one node; its warnings go to stderr, beside the configuration. An
// observed one has none.
func nodeOf(c *cobra.Command, f *flags, files []string) (n condor.Node, observed bool, err error) {
	cfg, err := loadConfig(c, f.config)
	if err != nil {
		return n, false, err
	}
	inv, unreadable, err := readInventory(c.Context(), files)
	if err != nil {
		return n, false, err
	}
	settings := hostSettings(c.Context(), files)
	inv.Host = settings.Within(inv.Host)
	p, err := plan.Build(cfg, inv)
	if err != nil {
		return n, false, err
	}
	show.Warn(c.ErrOrStderr(), append(p.Warnings, unreadable...))
	if p.Observe {
		fmt.Fprintf(c.ErrOrStderr(), "%s is observed (mode = \"observe\"): "+
			"its HTCondor stays as the site configured it, and nothing is generated for it.\n", orUnnamed(p.Host.Name))
		return n, true, nil
	}
	n = startd.Node(p, cfg).At(settings)
	n.Version = programVersion()
	return n, false, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/mps"
)

func planCommand(f *flags) *cobra.Command {
	var files []string
	var asJSON bool
	var job, against, bundled string
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show what the node would offer, and which resource runs out first",
		Long: `plan reads the configuration and the node, and shows what each GPU would offer:
its mode, shares and VRAM pool, and its part of the host's CPUs and memory.
Below, for a typical job (--job), how many such jobs CPUs, memory, VRAM and
shares each allow, and which of them runs out first.

Without --inventory the plan is held against the one that the agent has applied;
if they differ, plan says how and exits with 3. With --inventory nothing is
compared, since the file may describe another node; name the plan file with
--against to compare nevertheless.

With --from-report both come from a report that "gpuslot report" wrote elsewhere,
and the plan is held against the one that was in force there.

Then it says what HTCondor has to do for the plan: which startds need a restart,
the jobs on them by slot and id, and what waits (htcondor.changes).

Exit code 3: the node differs from the plan in force.`,
		Example: `  gpuslot plan
  gpuslot plan --inventory node.json --config new.toml
  gpuslot plan --from-report wn1.tar.gz
  gpuslot plan --job cpus=2,memory=8000,vram=6000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			request, err := parseJob(job)
			if err != nil {
				return show.Usage(err)
			}
			r, err := makeReport(c, f, files, against, bundled)
			if err != nil {
				return err
			}
			r.Job = request
			if !r.Plan.Observe {
				r.Capacity, r.CapacityOfAll = r.Plan.Capacity(request)
			}
			if !asJSON {
				r.text(c.OutOrStdout())
			} else if err := show.JSON(c.OutOrStdout(), r); err != nil {
				return err
			}
			if len(r.Differences) > 0 {
				return quits{nil, exitFound}
			}
			return nil
		},
	}
	inventoryFlag(c, &files)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&against, "against", "", "the plan `file` to compare with, as the agent writes it")
	c.Flags().StringVar(&bundled, "from-report", "",
		"configuration and inventory of this `file`, which \"gpuslot report\" wrote")
	exclusive(c, "from-report", "inventory")
	exclusive(c, "from-report", "config")
	c.Flags().StringVar(&job, "job", typicalJob, "the typical job's `needs`: its CPUs, its memory and VRAM in MiB")
	return c
}

// report is everything that "gpuslot plan" says.
type report struct {
	Plan          plan.Plan       `json:"plan"`
	Job           plan.Request    `json:"job"`
	Capacity      []plan.Capacity `json:"capacity"`
	CapacityOfAll plan.Capacity   `json:"capacity_of_all"`
	// Unreadable are GPUs that do not answer.
	Unreadable []string `json:"unreadable,omitempty"`
	// Differences from the plan in force; empty also where none was compared.
	Differences []string `json:"differences,omitempty"`
	// NotInForce says that the agent has applied no plan; empty if it has, or if that was
	// not looked at.
	NotInForce string `json:"not_in_force,omitempty"`
	// HTCondor is what its startds do not run yet of the plan; nil where that was
	// not asked, or is not known, for the reason in HTCondorUnknown.
	HTCondor        *[]api.Change `json:"htcondor,omitempty"`
	HTCondorUnknown string        `json:"htcondor_unknown,omitempty"`
}

func makeReport(c *cobra.Command, f *flags, files []string, against, bundled string) (report, error) {
	if bundled != "" {
		return reportOf(bundled, against)
	}
	cfg, err := loadConfig(c, f.config)
	if err != nil {
		return report{}, err
	}
	inv, unreadable, err := readInventory(c.Context(), files)
	if err != nil {
		return report{}, err
	}
	settings := hostSettings(c.Context(), files)
	inv.Host = settings.Within(inv.Host)
	if len(files) == 0 {
		if boot, err := mig.BootID(); err == nil {
			inv = mig.Executor{Dir: cfg.Paths.State, Boot: boot}.Owners(inv)
		}
		if inForce, err := plan.Read(cfg.Paths.PlanFile()); err == nil { // else compareInForce reports it
			inv = plan.WithServers(inv, inForce.Servers())
		}
	}
	p, err := plan.Build(cfg, inv)
	if err == nil && len(files) == 0 {
		err = p.Check(mps.Capabilities{}, capability.Controllers(os.DirFS("/sys"))) // the rest only the agent tries
	}
	if err != nil {
		return report{}, err
	}
	r := report{Plan: p, Unreadable: unreadable}
	switch {
	case against != "":
		r.Differences, err = compare(against, p)
	case len(files) == 0:
		err = r.compareInForce(cfg.Paths.PlanFile())
		if !p.Observe && r.NotInForce == "" {
			r.askHTCondor(c.Context(), f.socket, cfg, settings)
		}
	}
	return r, err
}

// reportOf plans the node of a report; --against takes the place of its own plan.
func reportOf(file, against string) (report, error) {
	b, err := readBundle(file)
	if err != nil {
		return report{}, err
	}
	if b.inForce != nil {
		b.inventory = plan.WithServers(b.inventory, b.inForce.Servers())
	}
	p, err := plan.Build(b.config, b.inventory)
	if err != nil {
		return report{}, err
	}
	r := report{Plan: p}
	switch {
	case against != "":
		r.Differences, err = compare(against, p)
	case b.inForce != nil:
		r.Differences = plan.Diff(*b.inForce, p)
	}
	return r, err
}

// askHTCondor finds out, by the agent, what a reload would leave to do.
func (r *report) askHTCondor(ctx context.Context, socket string, cfg config.Config, settings condor.Settings) {
	s, err := api.AskStatus(ctx, socket)
	switch {
	case err != nil:
		r.HTCondorUnknown = show.OneLine(err.Error())
		return
	case s.Node != nil && s.PlanApplied.IsZero():
		r.HTCondorUnknown = s.Node.Headline() + "; gpuslot node resume puts a plan in force."
		return
	case len(s.Startds) == 0:
		r.HTCondorUnknown = "no startd answers: one that starts needs some seconds, else see systemctl status condor."
		return
	}
	n := startd.Node(r.Plan, cfg).At(settings)
	n.Version = s.Version
	changes := startd.Changes(n, s.Startds, cfg.HTCondor.Changes)
	r.HTCondor = &changes
}

// compare says what differs between a plan file and p.
func compare(file string, p plan.Plan) ([]string, error) {
	applied, err := plan.Read(file)
	if err != nil {
		return nil, err
	}
	return plan.Diff(applied, p), nil
}

// compareInForce is compare for the agent's own file. On a fresh node there is none,
// and nothing differs.
func (r *report) compareInForce(file string) (err error) {
	r.Differences, err = compare(file, r.Plan)
	if errors.Is(err, fs.ErrNotExist) {
		r.NotInForce = fmt.Sprintf("No plan is in force yet: there is no %s. gpuslotd writes it at its first start.", file)
		return nil
	}
	return err
}

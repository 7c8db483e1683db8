package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// migPlanFlags say what to plan, for which GPUs.
type migPlanFlags struct {
	inventory []string
	model     string
	gpus      []string
	wants     []string
}

func migPlanCommand(f *flags) *cobra.Command {
	var p migPlanFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show the best MIG layout for what is wanted, and what it costs",
		Long: `plan finds the best MIG layouts and shows the steps that lead to them, what they
cost against the GPU without MIG, and why there is no more. It changes nothing.

Without --want it shows what the agent has decided for the work that waits in the
pool, where repartition is suggest or auto.

With --want each GPU comes as near as possible to a layout: profiles by name, a
count behind *, a start behind @. Given several times, the first that can be had
in full is taken.

The best plan serves most, then disturbs least, then leaves the fewest compute
slices unused, then leaves most layouts possible. FLEXIBILITY is in how many full
layouts the GPU can still end. Every layout is tried. Instances in use, and those that
gpuslot did not make, are never touched.

Without --inventory or --model the node's own GPUs and instances are read, which
needs root. An inventory has no instances: its GPUs are planned as if they had
none. The layouts of a model are the published ones; on a node the driver's
answers count.`,
		Example: `  gpuslot mig plan
  gpuslot mig plan --gpu 0 --want "3g.20gb,2g.10gb,1g.5gb*2"
  gpuslot mig plan --model A100-40 --want 4g.20gb,3g.20gb`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if p.none() {
				return showFollowed(c, f.socket, asJSON)
			}
			if err := p.check(); err != nil {
				return err
			}
			return p.withGPUs(c, f, func(gpus []gpu.MIGGPU, notes []string) error {
				r, err := p.plan(gpus)
				if err != nil {
					return err
				}
				r.Notes = notes
				if asJSON {
					return show.JSON(c.OutOrStdout(), r)
				}
				r.text(c.OutOrStdout())
				return nil
			})
		},
	}
	inventoryFlag(c, &p.inventory)
	c.Flags().StringVar(&p.model, "model", "", "an empty GPU of this `model` instead of this node, such as A100-40")
	c.Flags().StringSliceVar(&p.gpus, "gpu", nil, "these GPUs only, by NVML `index` or UUID")
	c.Flags().StringArrayVar(&p.wants, "want", nil, "a wanted `layout`; again for an alternative")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// none: nothing is asked for but what the agent itself would do.
func (p migPlanFlags) none() bool {
	return len(p.wants) == 0 && p.model == "" && len(p.inventory) == 0 && len(p.gpus) == 0
}

func (p migPlanFlags) check() error {
	switch {
	case len(p.wants) == 0:
		return needs("--want", "write a layout for each GPU, such as --want 3g.20gb,1g.5gb*2")
	case p.model != "" && len(p.inventory) > 0:
		return show.Usage(errors.New("one of --inventory and --model at a time"))
	case p.model != "" && len(p.gpus) > 0:
		return show.Usage(errors.New("--gpu chooses among the GPUs of a node; --model has only one"))
	}
	return nil
}

// withGPUs finds the GPUs to plan for.
func (p migPlanFlags) withGPUs(c *cobra.Command, f *flags, do func([]gpu.MIGGPU, []string) error) error {
	var gpus []gpu.MIGGPU
	var notes []string
	var err error
	switch {
	case p.model != "":
		var chip gpu.Chip
		chip, err = mig.Model(p.model, 0)
		err = show.Usage(err)
		gpus = []gpu.MIGGPU{{Chip: chip}}
	case len(p.inventory) > 0:
		gpus, notes, err = p.recorded(c)
	default:
		gpus, notes, err = p.live(c, f)
	}
	if err != nil {
		return err
	}
	return do(gpus, notes)
}

// recorded are the MIG-capable GPUs of an inventory.
func (p migPlanFlags) recorded(c *cobra.Command) (gpus []gpu.MIGGPU, notes []string, err error) {
	inv, _, err := readInventory(c.Context(), p.inventory)
	if err != nil {
		return nil, nil, err
	}
	major, _, _ := strings.Cut(inv.Driver, ".")
	driver, _ := strconv.Atoi(major) // 0, any, where it is not known
	if err := p.known(inv.GPUs); err != nil {
		return nil, nil, err
	}
	for _, g := range inv.GPUs {
		if !g.MIGCapable || !p.means(g.Index, g.UUID) {
			continue
		}
		chip, err := mig.ModelOf(g, driver)
		if err != nil {
			return nil, nil, err
		}
		gpus = append(gpus, gpu.MIGGPU{UUID: g.UUID, Index: g.Index, Chip: chip})
	}
	if len(gpus) == 0 {
		return nil, nil, errNoMIG
	}
	return gpus, []string{"an inventory has no MIG instances; planned as if there were none"}, nil
}

var errNoMIG = errors.New("none of the GPUs meant has MIG; gpuslot inventory lists them")

// live are the MIG-capable GPUs of this node with their instances.
func (p migPlanFlags) live(c *cobra.Command, f *flags) (gpus []gpu.MIGGPU, notes []string, err error) {
	err = withExecutor(c, f, false, func(_ mig.Executor, states []gpu.MIGState) error {
		if _, err := chosenGPUs(p.gpus, states); err != nil {
			return err
		}
		for _, s := range states {
			if !s.Capable || !p.means(s.Index, s.UUID) {
				continue
			}
			gpus = append(gpus, s.MIGGPU)
			if !s.Enabled {
				notes = append(notes, fmt.Sprintf("GPU %d (%s) is not in MIG mode; "+
					"gpuslot mig apply switches it on when no process uses the GPU", s.Index, s.UUID))
			}
		}
		return nil
	})
	if err == nil && len(gpus) == 0 {
		err = errNoMIG
	}
	return gpus, notes, err
}

// means reports whether --gpu names the GPU, or none.
func (p migPlanFlags) means(index int, u gpu.UUID) bool {
	return len(p.gpus) == 0 || slices.ContainsFunc(p.gpus, func(name string) bool { return isNamed(name, index, u) })
}

// known is an error if --gpu names a GPU that the inventory lacks.
func (p migPlanFlags) known(all []gpu.GPU) error {
	for _, name := range p.gpus {
		if !slices.ContainsFunc(all, func(g gpu.GPU) bool { return isNamed(name, g.Index, g.UUID) }) {
			return noGPU(name, len(all))
		}
	}
	return nil
}

// migReport is everything that "gpuslot mig plan" says.
type migReport struct {
	// Plans are one for each GPU.
	Plans []mig.Plan `json:"plans"`
	Notes []string   `json:"notes,omitempty"`
	// models are the chips of all GPUs in the order of the plans.
	models []string
}

func (p migPlanFlags) plan(gpus []gpu.MIGGPU) (r migReport, err error) {
	var catalogue mig.Catalogue
	for _, g := range gpus {
		r.models = append(r.models, g.Chip.Model)
	}
	for _, g := range gpus {
		var wants []mig.Want
		for _, text := range p.wants {
			w, err := mig.ParseWant(g.Chip, text)
			if err != nil {
				return r, show.Usage(err)
			}
			wants = append(wants, w)
		}
		plan, err := mig.PlanWant(&catalogue, g, wants...)
		if err != nil {
			return r, err
		}
		r.Plans = append(r.Plans, plan)
	}
	return r, nil
}

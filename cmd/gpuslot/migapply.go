package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/given"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/mig"
)

const layoutHelp = `The wanted layout comes from a file of NVIDIA's mig-parted (-f FILE -c NAME), or
from --layout for the GPUs named by --gpu. It is a list of profiles, with a count
after * and a start after @, such as "3g.20gb@4,1g.5gb*2". "none" is MIG mode
without instances, "off" no MIG mode.`

func migAssertCommand(f *flags) *cobra.Command {
	var t targetFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "assert",
		Short: "Tell whether GPUs have a wanted MIG layout",
		Long: `assert holds the MIG mode and the instances of GPUs against a wanted layout and
says what differs. It changes nothing. It needs root: the driver shows GPU
instances only to root.

` + layoutHelp + `

Exit codes: 0 the layout is as wanted, 1 it cannot be read, 3 it differs.`,
		Example: `  gpuslot mig assert -f /etc/nvidia-mig-manager/config.yaml -c all-1g.5gb
  gpuslot mig assert --gpu 0 --layout 3g.20gb@4,1g.5gb*4`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withTargets(c, f, t, func(_ mig.Executor, targets []target) error {
				return printAssert(c.OutOrStdout(), targets, asJSON)
			})
		},
	}
	t.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// verdict is what assert says of one GPU.
type verdict struct {
	gpu.MIGState
	Matches     bool     `json:"matches"`
	Differences []string `json:"differences,omitempty"`
}

func printAssert(w io.Writer, targets []target, asJSON bool) error {
	var verdicts []verdict
	same := true
	for _, t := range targets {
		v := verdict{MIGState: t.state, Differences: t.differences()}
		v.Matches = len(v.Differences) == 0
		same = same && v.Matches
		verdicts = append(verdicts, v)
	}
	if asJSON {
		if err := show.JSON(w, verdicts); err != nil {
			return err
		}
	} else {
		for _, v := range verdicts {
			printVerdict(w, v)
		}
	}
	if !same {
		return quits{nil, exitFound}
	}
	return nil
}

func printVerdict(w io.Writer, v verdict) {
	if v.Matches {
		fmt.Fprintf(w, "GPU %d (%s): as wanted: %s\n", v.Index, v.UUID, layoutOf(v.MIGState))
		return
	}
	fmt.Fprintf(w, "GPU %d (%s) differs: %s\n", v.Index, v.UUID, layoutOf(v.MIGState))
	for _, d := range v.Differences {
		fmt.Fprintf(w, "  %s\n", d)
	}
}

func layoutOf(s gpu.MIGState) string {
	switch {
	case !s.Capable:
		return "no MIG"
	case !s.Enabled:
		return "MIG mode off"
	}
	return s.Chip.Format(s.Layout())
}

func migApplyCommand(f *flags) *cobra.Command {
	var t targetFlags
	var asJSON, dry bool
	c := &cobra.Command{
		Use:   "apply",
		Short: "Bring GPUs to a wanted MIG layout without touching what is in use",
		Long: `apply changes the MIG mode and the instances of GPUs, one GPU after the other.
Instances that stay are not touched. Those that somebody uses, that gpuslotd
gave to a job, or that gpuslot did not make, are never destroyed. None is while
gpuslotd does not answer or know a job's GPU. Then apply changes nothing on that
GPU and says why. If a step fails the former layout is made again. Only the GPU
whose MIG mode changes is reset, and only while no process uses it.

` + layoutHelp + `

With --boot each GPU gets again what apply reached last: instances are lost at
every boot, on Hopper and later MIG mode too. It does not wait for gpuslotd.

Exit code 1: a GPU is not as wanted.`,
		Example: `  gpuslot mig apply -f config.yaml -c all-balanced --dry-run
  gpuslot mig apply --gpu GPU-0b63…,1 --layout 7g.40gb
  gpuslot mig apply --boot`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withTargets(c, f, t, func(e mig.Executor, targets []target) error {
				return applyAll(c.Context(), c.OutOrStdout(), e, targets, dry, asJSON)
			})
		},
	}
	t.add(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	c.Flags().BoolVar(&t.boot, "boot", false, "make again what was applied last")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// result is what apply says of one GPU.
type result struct {
	mig.Outcome
	Index int `json:"index"`
	// Planned are the steps of a dry run.
	Planned []mig.Step `json:"planned,omitempty"`
	Error   string     `json:"error,omitempty"`
	// Blockers are those who use what would have to go.
	Blockers []gpu.Holder `json:"blockers,omitempty"`
}

func applyAll(ctx context.Context, w io.Writer, e mig.Executor, targets []target, dry, asJSON bool) error {
	var results []result
	failed := false
	for _, t := range targets {
		r := applyOne(ctx, e, t, dry)
		failed = failed || r.Error != ""
		results = append(results, r)
		if !asJSON {
			printResult(w, t, r, dry)
		}
	}
	if asJSON {
		if err := show.JSON(w, results); err != nil {
			return err
		}
	}
	if failed {
		return quits{nil, exitFailed}
	}
	return nil
}

func applyOne(ctx context.Context, e mig.Executor, t target, dry bool) result {
	r := result{Outcome: mig.Outcome{GPU: t.state.UUID, End: mig.Unchanged}, Index: t.state.Index}
	wanted, err := t.reach()
	switch {
	case err != nil:
	case dry:
		r.Planned, err = e.Preview(ctx, t.state.UUID, wanted)
	default:
		r.Outcome, err = e.Apply(ctx, t.state.UUID, wanted)
	}
	if err != nil {
		r.Error = err.Error()
		var blocked mig.BlockedError
		if errors.As(err, &blocked) {
			r.Blockers = blocked.Holders
		}
	}
	return r
}

func printResult(w io.Writer, t target, r result, dry bool) {
	gpu := fmt.Sprintf("GPU %d (%s)", r.Index, r.GPU)
	for _, s := range r.Planned {
		fmt.Fprintf(w, "%s: would %s\n", gpu, s)
	}
	for _, s := range r.Steps {
		fmt.Fprintf(w, "%s: %s\n", gpu, s)
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(w, "%s: %s: %s\n", gpu, r.End, r.Error)
	case dry && len(r.Planned) > 0:
	case r.State == nil:
		fmt.Fprintf(w, "%s: as wanted: %s\n", gpu, layoutOf(t.state))
	default:
		fmt.Fprintf(w, "%s: as wanted: %s\n", gpu, layoutOf(*r.State))
	}
}

// withTargets reads the node and what is wanted, and hands both on.
func withTargets(c *cobra.Command, f *flags, t targetFlags, do func(mig.Executor, []target) error) error {
	if err := t.check(); err != nil {
		return err
	}
	return withExecutor(c, f, t.boot, func(e mig.Executor, states []gpu.MIGState) error {
		targets, err := t.targets(e, states)
		if err != nil {
			return err
		}
		return do(e, targets)
	})
}

// withExecutor opens NVML and reads the MIG state of every GPU. Boots: the node boots.
func withExecutor(c *cobra.Command, f *flags, boots bool, do func(mig.Executor, []gpu.MIGState) error) error {
	if os.Geteuid() != 0 {
		return show.Hint(fmt.Errorf("%s needs root: the driver shows and changes MIG instances only for root",
			c.CommandPath()), "run it with sudo")
	}
	cfg, err := loadConfig(c, f.config)
	if err != nil {
		return err
	}
	boot, err := mig.BootID()
	if err != nil {
		return err
	}
	l, err := nvml.Open()
	if err != nil {
		return err
	}
	err = func() error {
		sockets := given.Sockets(f.socket, c.Flags().Changed("socket"), cfg.Paths.Run)
		hardware := given.New(l.MIG(), given.Options{Sockets: sockets, Boot: boots, Warn: c.ErrOrStderr()})
		e := mig.Executor{Hardware: hardware, Dir: cfg.Paths.State, Boot: boot}
		if path, err := exec.LookPath("nvidia-smi"); err == nil {
			e.Reset = mig.ResetWith(path)
		}
		if path, err := exec.LookPath("nvidia-modprobe"); err == nil {
			e.Publish = mig.PublishWith(path)
		}
		states, err := readStates(c, l, e)
		if err != nil {
			return err
		}
		return do(e, states)
	}()
	return errors.Join(err, l.Close(context.WithoutCancel(c.Context())))
}

// readStates reads every GPU that answers, in the order of NVML's indices.
func readStates(c *cobra.Command, l *nvml.Library, e mig.Executor) ([]gpu.MIGState, error) {
	inv, unreadable, err := l.Inventory(c.Context())
	if err != nil {
		return nil, err
	}
	for _, err := range unreadable {
		show.Warn(c.ErrOrStderr(), []string{fmt.Sprintf("left out: %v", err)})
	}
	states := make([]gpu.MIGState, len(inv.GPUs))
	for k, g := range inv.GPUs {
		s, err := e.State(c.Context(), g.UUID)
		if err != nil {
			return nil, err
		}
		s.Index = g.Index
		states[k] = s
	}
	sortStates(states)
	return states, nil
}

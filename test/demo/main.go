// Command demo shows gpuslot's main job on a worker node with real systemd,
// real HTCondor and real control daemons, and exits non-zero if anything that
// must hold did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/scenes"
	"github.com/gpuslot/gpuslot/test/site"
)

func main() {
	only := flag.String("run", "", "play only the scene of this name")
	inventory := flag.String("inventory", "docs/examples/v100s-8.json", "the node to plan for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *inventory, *only); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

const intro = `
gpuslot demo: an HTCondor worker node with 8 Tesla V100S shares its GPUs among batch jobs.

  real      systemd as PID 1, HTCondor, its jobs and cgroups; one nvidia-cuda-mps-control per GPU
            (Debian's package, fetched now, never kept in the repository); gpuslot, installed as
            a site installs it; every limit set in the daemons and read back from them
  not real  the GPUs: simulated below NVML (test/sim) from an inventory composed from public
            data (%s). With real control daemons and no GPU no MPS server can
            come up, so no job here allocates anything: what is shown is who runs where, with
            which limits, and what happens when something breaks
`

func run(ctx context.Context, inventory, only string) (err error) {
	begin := time.Now()
	fmt.Printf(strings.TrimPrefix(intro, "\n")+"\n", inventory)
	inv, err := gpu.ReadInventory(inventory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Unstage()) }()
	s, err := site.Start(ctx, site.Options{Inventory: &inv, Progress: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := describe(ctx, s); err != nil {
		return err
	}
	if err := s.WaitAccept(ctx, len(inv.GPUs)); err != nil {
		return err
	}
	if err := showDaemons(ctx, s); err != nil {
		return err
	}
	stage := &scenes.Stage{Site: s, Inventory: inv, Report: &scenes.Report{Out: os.Stdout}}
	played, err := play(ctx, stage, only)
	if err != nil {
		return err
	}
	if n := len(stage.Failed); n > 0 {
		return fmt.Errorf("%d checks failed: %s", n, strings.Join(stage.Failed, "; "))
	}
	fmt.Printf("\nAll checks of %d scenes held; %s in all.\n", played, time.Since(begin).Round(time.Second))
	return nil
}

// describe prints the versions and the plan.
func describe(ctx context.Context, s *site.Site) error {
	fmt.Println()
	for _, c := range []struct{ what, command string }{
		{"systemd", "systemctl --version | head -n 1"},
		{"HTCondor", "condor_version | head -n 1"},
		{"control daemon", "echo " + s.DriverVersion},
		{"gpuslot", "gpuslot version"},
	} {
		out, err := s.Run(ctx, "sh", "-c", c.command)
		if err != nil {
			return err
		}
		fmt.Printf("  %-15s %s\n", c.what, strings.TrimSpace(out.Stdout))
	}
	out, err := s.Run(ctx, "gpuslot", "plan")
	if err != nil {
		return err
	}
	fmt.Printf("\n$ gpuslot plan\n%s\n", out.Stdout)
	return nil
}

// showDaemons prints what runs and what HTCondor made of it.
func showDaemons(ctx context.Context, s *site.Site) error {
	for _, c := range []string{
		"systemctl list-units --plain --no-legend 'gpuslot-mps@*'",
		`condor_status -constraint 'SlotType == "Partitionable"' -af:h Name GPUSlotUUID TotalSlotGPUs TotalSlotVRAM TotalSlotCpus GPUAccept`,
	} {
		out, err := s.Run(ctx, "sh", "-c", c)
		if err != nil {
			return err
		}
		fmt.Printf("$ %s\n%s\n", c, out.Stdout)
	}
	return nil
}

func play(ctx context.Context, stage *scenes.Stage, only string) (int, error) {
	played := 0
	for _, scene := range scenes.All() {
		if only != "" && scene.Name != only {
			continue
		}
		played++
		stage.Say("\n%d. %s", played, scene.Says)
		if err := scene.Play(ctx, stage); err != nil {
			return played, fmt.Errorf("%s: %w", scene.Name, err)
		}
	}
	if played == 0 {
		return 0, fmt.Errorf("no scene is called %q", only)
	}
	return played, nil
}

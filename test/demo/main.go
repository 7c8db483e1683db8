// Command demo shows gpuslot's main job on one worker node with real systemd and
// real HTCondor: many jobs share 8 GPUs, one over its budget is held, one fault is
// contained. With -tour it plays all scenes, on a node with NVIDIA's control daemons and
// on one with simulated ones. It exits non-zero if anything that must hold did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/scenes"
	"github.com/gpuslot/gpuslot/test/site"
)

func main() {
	only := flag.String("run", "", "with -tour: play only the scene of this name")
	inventory := flag.String("inventory", "docs/examples/v100s-8.json", "the demo's node, and the tour's of the leg real")
	tour := flag.Bool("tour", false, "play all scenes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	text, acts := intro, []act{{site.Sim, *inventory, scenes.Demo(100)}}
	if *tour {
		text, acts = introTour, []act{{site.Real, *inventory, chosen(site.Real, *only)},
			{site.Sim, "test/site/testdata/v100s-2-h100.json", chosen(site.Sim, *only)}}
	}
	s := show{out: os.Stdout, began: time.Now(), now: time.Now, play: play}
	if seconds, err := strconv.ParseInt(os.Getenv("GPUSLOT_DEMO_BEGAN"), 10, 64); err == nil { // make's own beginning
		s.compiled = s.began.Sub(time.Unix(seconds, 0))
	}
	if err := errors.Join(s.run(ctx, text, acts), site.Unstage()); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

const intro = `
gpuslot demo: one HTCondor worker node with 8 GPUs. 100 jobs share them; a job over its budget is held;
the fault of one GPU is contained. It takes about a minute on two quiet cores: 10 s to build gpuslot and boot
the node, 25 s for the 100 jobs, 20 s for the rest. The first time takes longer, to compile and to fetch HTCondor.

  real       systemd as PID 1, HTCondor, its jobs and cgroups; gpuslot, installed as a site installs it
  simulated  the GPUs, MPS and libcuda (test/sim): jobs attach, allocate and are limited

`

const introTour = `
gpuslot tour: HTCondor worker nodes share their GPUs among batch jobs, in two legs.

  real in both  systemd as PID 1, HTCondor, its jobs and cgroups; gpuslot, installed as a site installs it
  leg real      NVIDIA's nvidia-cuda-mps-control (Debian's package, fetched now, never kept in the
                repository), one per GPU; every limit set in the daemons and read back from them. Without
                a GPU it gets no MPS server up, so no job allocates anything: shown is who runs where,
                with which limits, and what happens when something breaks
  leg sim       simulated control daemons, MPS servers and libcuda (test/sim): jobs attach, allocate
                and are limited
  not real      the GPUs, in both: simulated below NVML from inventories composed from public data
`

// act is one node and the leg that it shows.
type act struct {
	leg       site.Leg
	inventory string
	scenes    []scenes.Scene
}

// show plays acts, and says before and after them how long they take.
type show struct {
	out   io.Writer
	began time.Time
	// compiled is how long make needed before began.
	compiled time.Duration
	now      func() time.Time
	// play plays an act whose first scene has the number after before; it returns the checks that failed.
	play func(ctx context.Context, a act, before int, began time.Time) (failed []string, err error)
}

func (s show) run(ctx context.Context, text string, acts []act) error {
	_, _ = fmt.Fprint(s.out, strings.TrimPrefix(text, "\n"))
	var failed []string
	played, before := 0, cached()
	for _, a := range acts {
		if len(a.scenes) == 0 {
			continue
		}
		wrong, err := s.play(ctx, a, played, s.began)
		if err != nil {
			return err
		}
		played += len(a.scenes)
		failed = append(failed, wrong...)
	}
	if played == 0 {
		return errors.New("no scene has the name after -run")
	}
	if n := len(failed); n > 0 {
		return fmt.Errorf("%d checks failed: %s", n, strings.Join(failed, "; "))
	}
	caches := "warm"
	made := slices.DeleteFunc(cached(), func(name string) bool { return slices.Contains(before, name) })
	if len(made) > 0 {
		caches = "cold (made now: " + strings.Join(made, ", ") + ")"
	}
	took := s.compiled + s.now().Sub(s.began)
	_, _ = fmt.Fprintf(s.out, "\nAll checks of %d scenes held. "+
		"It took %s, of which %s to compile the demo. The caches were %s.\n", played, took.Round(time.Second), s.compiled.Round(time.Second), caches)
	return nil
}

// cached are the node images and the simulated GPUs in the cache of test/node and test/sim.
func cached() (names []string) {
	dir := os.Getenv("GPUSLOT_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil
		}
		dir = filepath.Join(user, "gpuslot")
	}
	entries, _ := os.ReadDir(dir) // none before the first run
	for _, e := range entries {
		if e.IsDir() && (strings.HasPrefix(e.Name(), "node-") || strings.HasPrefix(e.Name(), "sim-")) {
			names = append(names, e.Name())
		}
	}
	return names
}

// chosen are the scenes of a leg that -run lets through.
func chosen(leg site.Leg, only string) []scenes.Scene {
	var list []scenes.Scene
	for _, scene := range scenes.All() {
		if scene.Leg == leg && (only == "" || scene.Name == only) {
			list = append(list, scene)
		}
	}
	return list
}

// play boots the node and plays the scenes.
func play(ctx context.Context, a act, before int, begin time.Time) (failed []string, err error) {
	inv, err := gpu.ReadInventory(a.inventory)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\nleg %s, with the GPUs of %s\n", a.leg, a.inventory)
	s, err := site.Start(ctx, site.Options{Leg: a.leg, Inventory: &inv, Progress: os.Stdout})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := describe(ctx, s); err != nil {
		return nil, err
	}
	if err := s.WaitAccept(ctx, len(inv.GPUs)); err != nil {
		return nil, err
	}
	if err := showDaemons(ctx, s); err != nil {
		return nil, err
	}
	stage := &scenes.Stage{Site: s, Inventory: inv, Report: &scenes.Report{Out: os.Stdout}}
	for i, scene := range a.scenes {
		stage.Say("\n%d. after %s: %s", before+i+1, time.Since(begin).Round(time.Second), scene.Says)
		if err := scene.Play(ctx, stage); err != nil {
			return stage.Failed, fmt.Errorf("%s: %w", scene.Name, err)
		}
	}
	return stage.Failed, nil
}

// describe prints the versions and the plan.
func describe(ctx context.Context, s *site.Site) error {
	fmt.Println()
	for _, c := range []struct{ what, command string }{
		{"systemd", "systemctl --version | head -n 1"},
		{"HTCondor", "condor_version | head -n 1"},
		{"control daemon", fmt.Sprintf("echo '%s (%s)'", s.DriverVersion, s.Leg)},
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

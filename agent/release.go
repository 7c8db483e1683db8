package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/partitions"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// Release undoes what gpuslot did to the node: it stops the control daemons,
// removes the MIG devices that it made and restores MIG and compute modes, and
// removes the generated files. The agent must not run. With jobs on its GPUs it
// refuses, unless forced: their MPS servers end with the daemons; MIG devices in
// use stay in any case.
func Release(ctx context.Context, o Options, force bool) error {
	cfg, err := config.Load(o.ConfigFile)
	if err != nil {
		return err
	}
	unlock, err := lockRun(cfg.Paths)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := newAgent(o, cfg)
	if err != nil {
		return err
	}
	a.recall(cfg.Paths)
	if !force {
		if err := a.idle(ctx); err != nil {
			return err
		}
	}
	if err := a.keeper.StopAll(ctx); err != nil {
		return err
	}
	return errors.Join(
		a.limits.Release(ctx),
		a.nodes.OpenOutside(),
		a.layouts.Leave(ctx, a.layoutNode(a.view.Load(), gpu.Inventory{})),
		a.modes.Restore(ctx, a.hardware.Inventory),
		removeGenerated(cfg),
	)
}

// idle refuses while jobs run that gpuslot admitted, or may have.
func (a *Agent) idle(ctx context.Context) error {
	for range jobs.MostAsked {
		if a.jobs.Unknown() == "" || a.startds.Ask(ctx) {
			break
		}
	}
	if why := a.jobs.Unknown(); why != "" {
		return fmt.Errorf("jobs may be running: %s; or use --force, which ends the MPS servers of running jobs", why)
	}
	var slots []string
	for _, r := range a.jobs.Running() {
		slots = append(slots, fmt.Sprintf("%s (%s on %s)", r.Starter.Slot, r.AccountName(), r.GPU))
	}
	if len(slots) == 0 {
		return nil
	}
	return fmt.Errorf("jobs run in %s: drain the node first (condor_drain), or use --force, which ends their MPS "+
		"servers", strings.Join(slots, ", "))
}

// removeGenerated removes what the agent wrote for HTCondor and for its own
// tools, and nothing else.
func removeGenerated(cfg config.Config) error {
	files := []string{
		cfg.Paths.InventoryAds(),
		cfg.Paths.PlanFile(),
		cfg.Paths.JobWrapper(),
		partitions.File(cfg.Paths),
		layouts.File(cfg.Paths),
	}
	if cfg.HTCondor.Manage {
		files = append(files, cfg.Paths.CondorConfig(), startd.ClosedFile(cfg.Paths))
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, store.Remove(f))
	}
	return errors.Join(append(errs, os.RemoveAll(daemons.FlagsDirectory(cfg.Paths)))...)
}

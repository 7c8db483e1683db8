package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/condor"
)

func (a *Agent) writePlan(paths config.Paths, p plan.Plan) error {
	b, err := p.Encode()
	if err != nil {
		return err
	}
	_, err = store.WriteIfChanged(paths.PlanFile(), b)
	return err
}

// writeCondor writes what HTCondor reads at the start of the startd.
func (a *Agent) writeCondor(ctx context.Context, v *view) error {
	cfg := v.config
	n := a.node(v)
	if names, known := v.can.Names(); known {
		n.MPS = &names
	}
	for file, ads := range condor.Inventories(n) {
		if changed, err := store.WriteIfChanged(file, ads); err != nil {
			return err
		} else if changed {
			a.log.Info("inventory ads written", "file", file)
		}
	}
	if err := a.makeExecute(ctx, n); err != nil {
		return err
	}
	if err := link(cfg.Paths.JobWrapper(), cfg.HTCondor.JobWrapper); err != nil {
		return err
	}
	if !cfg.HTCondor.Manage {
		return nil
	}
	text, err := condor.ExecutionPoint(n)
	if err != nil {
		return err
	}
	if _, err := store.WriteIfChanged(closedFile(cfg.Paths), condor.ClosedNode(cfg.Paths.Libexec)); err != nil {
		return err
	}
	v.generated = text
	changed, err := store.WriteIfChanged(cfg.Paths.CondorConfig, text)
	if changed && err == nil {
		a.log.Info("HTCondor configuration written", "file", cfg.Paths.CondorConfig)
		nudge(a.rewritten) // ask the startd whether it runs with an older one
	}
	return err
}

// closedFile keeps HTCondor from offering GPUs by itself on a node that gpuslot has
// set up, while the configuration generated for it is missing. It outlives boots.
func closedFile(p config.Paths) string { return filepath.Join(p.State, "condor-closed.conf") }

// link keeps one word for supervise as a symbolic link, which is read in
// microseconds by the program that every job waits for. Empty is no link.
func link(path, word string) error {
	now, err := os.Readlink(path)
	switch {
	case word == now && (err == nil || errors.Is(err, os.ErrNotExist)):
		return nil
	case word == "":
		return os.Remove(path)
	}
	next := path + ".new"
	if err := store.Remove(next); err != nil {
		return err
	}
	if err := os.Symlink(word, next); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(next, path)
}

func (a *Agent) node(v *view) condor.Node {
	n := startd.Node(v.plan, v.config)
	n.Version, n.SiteSlotTypes = a.version, v.settings.SlotTypes()
	return n
}

// readSettings asks for HTCondor's configuration as the site has it. What was known
// last stays while it cannot be read.
func (a *Agent) readSettings(ctx context.Context, v *view, problem func(error)) {
	if a.settings == nil || v.condor == (condor.Version{}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now, err := a.settings(ctx)
	if err != nil {
		problem(fmt.Errorf("HTCondor's configuration cannot be read, so NUM_CPUS, MEMORY and RESERVED_MEMORY are not heeded: %w", err))
		return
	}
	v.settings = now
}

// overrides are the site's settings that take something away from what the agent
// wrote for HTCondor.
func (v *view) overrides() []condor.Override {
	if !v.written || !v.config.HTCondor.Manage || v.settings == nil {
		return nil
	}
	return condor.Overrides(v.generated, v.config.Paths.CondorConfig, v.settings)
}

// condorVersion is HTCondor's; zero if it is not installed yet.
func (a *Agent) condorVersion(ctx context.Context, problem func(error)) condor.Version {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v, err := a.startd.Version(ctx)
	if err != nil {
		problem(fmt.Errorf("HTCondor's version is not known: %w", err))
	}
	return v
}

// checkCondor says why nothing may be offered to this HTCondor; empty if it may.
func checkCondor(v condor.Version, problem func(error)) string {
	if v == (condor.Version{}) {
		return ""
	}
	warning, err := condor.Check(v)
	if warning != "" {
		problem(errors.New(warning))
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
)

func (a *Agent) writePlan(paths config.Paths, p plan.Plan) error {
	b, err := p.Encode()
	if err != nil {
		return err
	}
	_, err = writeIfChanged(PlanFile(paths), b)
	return err
}

// writeCondor writes what HTCondor reads at the start of the startd.
func (a *Agent) writeCondor(cfg config.Config, p plan.Plan, can Capabilities) error {
	n := a.node(cfg, p)
	if words, known := can.words(); known {
		n.MPS = &words
	}
	for file, ads := range condor.Inventories(n) {
		if changed, err := writeIfChanged(file, ads); err != nil {
			return err
		} else if changed {
			a.log.Info("inventory ads written", "file", file)
		}
	}
	if err := a.makeExecute(n); err != nil {
		return err
	}
	if err := linkWrapper(JobWrapperLink(cfg.Paths), cfg.HTCondor.JobWrapper); err != nil {
		return err
	}
	if !cfg.HTCondor.Manage {
		return nil
	}
	text, err := condor.ExecutionPoint(n)
	if err != nil {
		return err
	}
	if _, err := writeIfChanged(closedFile(cfg.Paths), condor.ClosedNode(cfg.Paths.Libexec)); err != nil {
		return err
	}
	changed, err := writeIfChanged(cfg.Paths.CondorConfig, text)
	if changed && err == nil {
		a.log.Info("HTCondor configuration written", "file", cfg.Paths.CondorConfig)
		nudge(a.rewritten) // ask the startd whether it runs with an older one
	}
	return err
}

// linkWrapper tells supervise of the site's own job wrapper. A link is read in
// microseconds by the program that every job waits for.
func linkWrapper(link, wrapper string) error {
	now, err := os.Readlink(link)
	switch {
	case wrapper == now && (err == nil || errors.Is(err, os.ErrNotExist)):
		return nil
	case wrapper == "":
		return os.Remove(link)
	}
	next := link + ".new"
	if err := removeFile(next); err != nil {
		return err
	}
	if err := os.Symlink(wrapper, next); err != nil {
		return fmt.Errorf("link the site's job wrapper: %w", err)
	}
	return os.Rename(next, link)
}

func (a *Agent) node(cfg config.Config, p plan.Plan) condor.Node {
	n := Node(p, cfg)
	n.Version = a.version
	return n
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

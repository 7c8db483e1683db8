package startd

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/condor"
)

// Files are those that gpuslot writes for HTCondor.
type Files struct {
	// Give: the agent runs as root, so that directories of jobs get their owner.
	Give bool
	// Rewritten is called after the generated configuration was replaced.
	Rewritten func()
	Log       *slog.Logger
}

// Write writes what HTCondor reads at the start of the startd: the inventory first, because
// the configuration names it. It returns the generated configuration, nil where the site
// does not let gpuslot manage it.
func (f Files) Write(ctx context.Context, n condor.Node, cfg config.Config) (generated []byte, err error) {
	for file, ads := range condor.Inventories(n) {
		if changed, err := store.WriteIfChanged(file, ads); err != nil {
			return nil, err
		} else if changed {
			f.Log.Info("inventory ads written", "file", file)
		}
	}
	if err := f.makeExecute(ctx, n); err != nil {
		return nil, err
	}
	if err := store.Link(cfg.Paths.JobWrapper(), cfg.HTCondor.JobWrapper); err != nil {
		return nil, err
	}
	if !cfg.HTCondor.Manage {
		return nil, nil
	}
	text, err := condor.ExecutionPoint(n)
	if err != nil {
		return nil, err
	}
	if _, err := store.WriteIfChanged(ClosedFile(cfg.Paths), condor.ClosedNode(cfg.Paths.Libexec)); err != nil {
		return nil, err
	}
	changed, err := store.WriteIfChanged(cfg.Paths.CondorConfig(), text)
	if changed && err == nil {
		f.Log.Info("HTCondor configuration written", "file", cfg.Paths.CondorConfig())
		f.Rewritten()
	}
	return text, err
}

// ClosedFile keeps HTCondor from offering GPUs by itself on a node that gpuslot has set up,
// while the configuration generated for it is missing. It outlives boots.
func ClosedFile(p config.Paths) string { return filepath.Join(p.State, "condor-closed.conf") }

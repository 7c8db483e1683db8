package startd

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

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
	if _, err := store.WriteIfChanged(ClosedFile(cfg.Paths), condor.ClosedNode(n)); err != nil {
		return nil, err
	}
	// A file that cannot be read has nothing that a starter could find.
	old, _ := os.ReadFile(cfg.Paths.CondorConfig())
	text = append(text, earlier(old, text)...)
	changed, err := store.WriteIfChanged(cfg.Paths.CondorConfig(), text)
	if changed && err == nil {
		f.Log.Info("HTCondor configuration written", "file", cfg.Paths.CondorConfig())
		f.Rewritten()
	}
	return text, err
}

// earlier are the lines of the last configuration that starters look for under the numbers of
// its slot types, where the next one does not have these. A startd of an earlier plan still
// runs with them, and its jobs would start without the hook. They stay until the node boots.
func earlier(last, next []byte) []byte {
	const comment = "\n# Slot types of earlier plans: their startd may still run.\n"
	var kept []byte
	for line := range bytes.Lines(last) {
		name, _, _ := bytes.Cut(line, []byte(" = "))
		of, knob, _ := strings.Cut(string(name), ".")
		has := func(text string) bool { return bytes.Contains(next, []byte("\n"+text)) }
		switch {
		case of == "GPUSLOT_HOOK_PREPARE_JOB" && !has(of+" = "),
			(knob == "STARTER_JOB_HOOK_KEYWORD" || knob == "USER_JOB_WRAPPER") && !has(of+"."):
			kept = append(kept, line...)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return append([]byte(comment), kept...)
}

// ClosedFile keeps HTCondor from offering GPUs by itself on a node that gpuslot has set up,
// while the configuration generated for it is missing. It outlives boots.
func ClosedFile(p config.Paths) string { return filepath.Join(p.State, "condor-closed.conf") }

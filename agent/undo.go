package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// undoSchema is the first field of the undo file; another one is not touched.
const undoSchema = "gpuslot-undo/1"

// undo is what gpuslot changed on the host and has to put back. It is written
// before each change, so that no crash can lose the way back.
type undo struct {
	Schema string `json:"schema"`
	// ComputeModes are those from before the GPU was shared.
	ComputeModes map[gpu.UUID]gpu.ComputeMode `json:"compute_modes"`
	// MIGModes are those from before the GPU was divided. What gpuslot made on
	// such a GPU goes when it leaves it.
	MIGModes map[gpu.UUID]bool `json:"mig_modes,omitempty"`
}

// undoFile holds what to restore when a GPU stops being shared.
func undoFile(p config.Paths) string { return filepath.Join(p.State, "undo.json") }

// setUp says that an agent has changed this node since the last gpuslotd --release.
func setUp(p config.Paths) bool {
	for _, file := range []string{undoFile(p), closedFile(p), p.PlanFile()} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

func readUndo(path string) (undo, error) {
	u := undo{Schema: undoSchema, ComputeModes: map[gpu.UUID]gpu.ComputeMode{}, MIGModes: map[gpu.UUID]bool{}}
	saved, err := store.Store[undo]{Path: path, Schema: undoSchema}.Read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return u, nil
	case errors.Is(err, store.ErrNewer):
		return u, fmt.Errorf("%w: compute modes are left alone until the gpuslot that wrote it has run --release", err)
	case err != nil:
		return u, fmt.Errorf("read what to undo: %w: compute modes are left alone until the file is mended or removed", err)
	}
	u = saved
	if u.ComputeModes == nil {
		u.ComputeModes = map[gpu.UUID]gpu.ComputeMode{}
	}
	if u.MIGModes == nil {
		u.MIGModes = map[gpu.UUID]bool{}
	}
	return u, nil
}

func (u undo) write(path string) error { return store.WriteJSON(path, u) }

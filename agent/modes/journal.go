// Package modes gives shared GPUs the compute mode that the plan wants, and restores the mode
// of before when a GPU leaves gpuslot. It also owns the journal of what gpuslot changed on the
// GPUs: compute modes and MIG modes. A change is noted there before it is made, so that no
// crash loses the way back.
//
// Start at Modes.Borrow and Modes.Return; journal.go is the file.
package modes

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// schema is the first field of the file. A file with another one is not touched.
const schema = "gpuslot-undo/1"

// Journal is what the file has.
type Journal struct {
	Schema string `json:"schema"`
	// ComputeModes are those from before a GPU was shared.
	ComputeModes map[gpu.UUID]gpu.ComputeMode `json:"compute_modes"`
	// MIGModes are those from before a GPU was divided: true if MIG mode was on. The
	// MIG devices that gpuslot made on such a GPU go when it leaves the GPU.
	MIGModes map[gpu.UUID]bool `json:"mig_modes,omitempty"`
}

// File is where the journal of a node lies.
func File(p config.Paths) string { return filepath.Join(p.State, "undo.json") }

// Read returns the journal, an empty one if there is no file. Its maps are never nil. An
// error ends with what to do; the journal with it is not to be written.
func Read(path string) (Journal, error) {
	empty := Journal{Schema: schema, ComputeModes: map[gpu.UUID]gpu.ComputeMode{}, MIGModes: map[gpu.UUID]bool{}}
	j, err := store.Store[Journal]{Path: path, Schema: schema}.Read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case errors.Is(err, store.ErrNewer):
		return empty, fmt.Errorf(
			"%w: compute modes are left alone until the gpuslot that wrote it has run --release", err)
	case err != nil:
		return empty, fmt.Errorf(
			"read what to undo: %w: compute modes are left alone until the file is mended or removed", err)
	}
	if j.ComputeModes == nil {
		j.ComputeModes = empty.ComputeModes
	}
	if j.MIGModes == nil {
		j.MIGModes = empty.MIGModes
	}
	return j, nil
}

// Write replaces the file.
func (j Journal) Write(path string) error { return store.WriteJSON(path, j) }

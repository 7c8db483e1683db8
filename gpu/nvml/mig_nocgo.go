//go:build !cgo

package nvml

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// MIG reads and changes the MIG mode and instances; there is none without cgo.
type MIG struct{}

// MIG is the library's part for MIG; its calls return ErrNotBuilt.
func (*Library) MIG() MIG { return MIG{} }

// State returns ErrNotBuilt.
func (MIG) State(context.Context, gpu.UUID) (gpu.MIGState, error) { return gpu.MIGState{}, ErrNotBuilt }

// SetMode returns ErrNotBuilt.
func (MIG) SetMode(context.Context, gpu.UUID, bool) error { return ErrNotBuilt }

// Create returns ErrNotBuilt.
func (MIG) Create(context.Context, gpu.UUID, gpu.Place, int) error { return ErrNotBuilt }

// Destroy returns ErrNotBuilt.
func (MIG) Destroy(context.Context, gpu.UUID, gpu.Place) error { return ErrNotBuilt }

//go:build !cgo

package nvml

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Library is the loaded NVML; there is none without cgo.
type Library struct{}

// Open returns ErrNotBuilt.
func Open() (*Library, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Library) Close(context.Context) error { return nil }

// Inventory returns ErrNotBuilt.
func (*Library) Inventory(context.Context) (gpu.Inventory, []error, error) {
	return gpu.Inventory{}, nil, ErrNotBuilt
}

// SetComputeMode returns ErrNotBuilt.
func (*Library) SetComputeMode(context.Context, gpu.UUID, gpu.ComputeMode) error { return ErrNotBuilt }

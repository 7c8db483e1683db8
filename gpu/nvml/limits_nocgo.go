//go:build !cgo

package nvml

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// HasMemoryLimits is false without cgo.
func (*Library) HasMemoryLimits() bool { return false }

// SetMemoryLimits returns ErrNotBuilt.
func (*Library) SetMemoryLimits(context.Context, gpu.UUID, string, gpu.Bytes, gpu.Bytes) error {
	return ErrNotBuilt
}

// MemoryLimits returns ErrNotBuilt.
func (*Library) MemoryLimits(context.Context, gpu.UUID, string) (gpu.MemoryLimits, error) {
	return gpu.MemoryLimits{}, ErrNotBuilt
}

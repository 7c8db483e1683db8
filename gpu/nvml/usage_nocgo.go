//go:build !cgo

package nvml

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Usage reads what the GPUs do; it cannot without cgo.
type Usage struct{}

// Usage begins no readings.
func (*Library) Usage() *Usage { return &Usage{} }

// Read returns ErrNotBuilt.
func (*Usage) Read(context.Context) ([]gpu.Reading, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Usage) Close(context.Context) error { return nil }

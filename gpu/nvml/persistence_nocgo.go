//go:build !cgo

package nvml

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Persistence returns ErrNotBuilt.
func (*Library) Persistence(context.Context, gpu.UUID) (gpu.Measured[bool], error) {
	return gpu.Measured[bool]{}, ErrNotBuilt
}

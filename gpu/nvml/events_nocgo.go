//go:build !cgo

package nvml

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Watch returns ErrNotBuilt.
func (*Library) Watch(context.Context, func(gpu.Event), func(Listening)) error { return ErrNotBuilt }

// Conditions returns ErrNotBuilt.
func (*Library) Conditions(context.Context, []gpu.UUID) ([]gpu.Condition, error) {
	return nil, ErrNotBuilt
}

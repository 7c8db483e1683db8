package mig

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Hardware is one node's GPUs as the executor needs them: the driver through
// NVML, and a fake in tests. Every call has a deadline of its own besides ctx.
type Hardware interface {
	// State reads one GPU; nothing is cached over a change.
	State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error)
	// SetMode sets MIG mode. It may answer ErrInUse and ErrResetRequired; the
	// mode is then pending where the driver keeps it.
	SetMode(ctx context.Context, u gpu.UUID, enabled bool) error
	// Create makes the GPU instance at this place and in it one compute instance
	// with all its multiprocessors. What exists of both is kept. If the compute
	// instance cannot be made, a GPU instance made by this call goes again.
	Create(ctx context.Context, u gpu.UUID, p gpu.Place, size int) error
	// Destroy removes the instance at this place, its compute instances first;
	// it succeeds if there is none.
	Destroy(ctx context.Context, u gpu.UUID, p gpu.Place) error
}

// WantedFrom makes of a planned layout what Apply is to reach: without foreign
// instances that are not one whole device, which only their maker repairs.
func WantedFrom(s gpu.MIGState, l gpu.Layout) Wanted {
	w := Wanted{Enabled: true}
	for _, p := range l {
		if i, there := s.At(p); !there || i.Owner == gpu.Ours || s.Whole(i) {
			w.Layout = append(w.Layout, p)
		}
	}
	return w
}

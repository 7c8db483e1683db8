package usage

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Activities are shares of busy multiprocessors, 0 to 1.
type Activities map[Instance]float64

// Instance is a whole GPU or one of its GPU instances.
type Instance struct {
	GPU gpu.UUID
	// ID is NVML's id of the GPU instance, or WholeGPU.
	ID int
}

// WholeGPU stands in Instance for the GPU itself.
const WholeGPU = -1

// ActivitySource tells what NVML does not on GPUs before Hopper. It returns when the context ends, at the latest.
type ActivitySource interface {
	Activities(ctx context.Context) (Activities, error)
}

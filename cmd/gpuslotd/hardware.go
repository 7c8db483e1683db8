package main

import (
	"context"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
)

// nvmlHardware is NVML, opened when it can be: a driver may be loaded long
// after boot.
type nvmlHardware struct {
	mu    sync.Mutex
	lib   *nvml.Library
	usage *nvml.Usage
}

// Read reads what the GPUs do, for the agent's sampler: its one caller.
func (h *nvmlHardware) Read(ctx context.Context) ([]gpu.Reading, error) {
	lib, err := h.library()
	if err != nil {
		return nil, err
	}
	if h.usage == nil {
		h.usage = lib.Usage()
	}
	return h.usage.Read(ctx)
}

// Inventory opens NVML if need be and reads the node.
func (h *nvmlHardware) Inventory(ctx context.Context) (gpu.Inventory, []error, error) {
	lib, err := h.library()
	if err != nil {
		return gpu.Inventory{}, nil, err
	}
	return lib.Inventory(ctx)
}

// SetComputeMode sets the mode of one GPU.
func (h *nvmlHardware) SetComputeMode(ctx context.Context, u gpu.UUID, mode gpu.ComputeMode) error {
	lib, err := h.library()
	if err != nil {
		return err
	}
	return lib.SetComputeMode(ctx, u, mode)
}

// Watch tells the GPUs' events.
func (h *nvmlHardware) Watch(ctx context.Context, tell func(gpu.Event)) error {
	lib, err := h.library()
	if err != nil {
		return err
	}
	// A GPU without events is asked for its condition like every other.
	return lib.Watch(ctx, tell, func(nvml.Listening) {})
}

// Conditions asks GPUs how they are.
func (h *nvmlHardware) Conditions(ctx context.Context, of []gpu.UUID) ([]gpu.Condition, error) {
	lib, err := h.library()
	if err != nil {
		return nil, err
	}
	return lib.Conditions(ctx, of)
}

// memoryLimits says whether the driver can hold a cgroup's VRAM to a limit.
func (h *nvmlHardware) memoryLimits() (has, known bool) {
	lib, err := h.library()
	if err != nil {
		return false, false
	}
	return lib.HasMemoryLimits(), true
}

// SetMemoryLimits limits the VRAM of a cgroup on one GPU.
func (h *nvmlHardware) SetMemoryLimits(ctx context.Context, u gpu.UUID, cgroup string, soft, hard gpu.Bytes) error {
	lib, err := h.library()
	if err != nil {
		return err
	}
	return lib.SetMemoryLimits(ctx, u, cgroup, soft, hard)
}

// MemoryLimits reads the limits of a cgroup on one GPU.
func (h *nvmlHardware) MemoryLimits(ctx context.Context, u gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	lib, err := h.library()
	if err != nil {
		return gpu.MemoryLimits{}, err
	}
	return lib.MemoryLimits(ctx, u, cgroup)
}

func (h *nvmlHardware) library() (*nvml.Library, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lib != nil {
		return h.lib, nil
	}
	lib, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	h.lib = lib
	return lib, nil
}

// closeTimeout bounds the good-bye to a driver that may hang.
const closeTimeout = 2 * time.Second

func (h *nvmlHardware) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lib == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if h.usage == nil || h.usage.Close(ctx) == nil {
		_ = h.lib.Close(ctx) // the process ends anyway
	} // otherwise a GPU is still being read, and NVML must not be shut down under it
	h.lib, h.usage = nil, nil
}

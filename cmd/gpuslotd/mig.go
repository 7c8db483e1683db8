package main

import (
	"context"
	"os/exec"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/mig"
)

// nvmlMIG is MIG through the NVML that the rest of the agent uses.
type nvmlMIG struct{ h *nvmlHardware }

func (m nvmlMIG) library() (nvml.MIG, error) {
	lib, err := m.h.library()
	if err != nil {
		return nvml.MIG{}, err
	}
	return lib.MIG(), nil
}

// State reads one GPU.
func (m nvmlMIG) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	lib, err := m.library()
	if err != nil {
		return gpu.MIGState{}, err
	}
	return lib.State(ctx, u)
}

// SetMode sets MIG mode.
func (m nvmlMIG) SetMode(ctx context.Context, u gpu.UUID, enabled bool) error {
	lib, err := m.library()
	if err != nil {
		return err
	}
	return lib.SetMode(ctx, u, enabled)
}

// Create makes an instance.
func (m nvmlMIG) Create(ctx context.Context, u gpu.UUID, p gpu.Place, size int) error {
	lib, err := m.library()
	if err != nil {
		return err
	}
	return lib.Create(ctx, u, p, size)
}

// Destroy removes an instance.
func (m nvmlMIG) Destroy(ctx context.Context, u gpu.UUID, p gpu.Place) error {
	lib, err := m.library()
	if err != nil {
		return err
	}
	return lib.Destroy(ctx, u, p)
}

// migExecutor changes layouts with NVML and, where they are installed, NVIDIA's
// tools for what NVML does not do.
func migExecutor(h *nvmlHardware) (mig.Executor, error) {
	boot, err := mig.BootID()
	if err != nil {
		return mig.Executor{}, err
	}
	e := mig.Executor{Hardware: nvmlMIG{h}, Boot: boot}
	if path, err := exec.LookPath("nvidia-smi"); err == nil {
		e.Reset = mig.ResetWith(path)
	}
	if path, err := exec.LookPath("nvidia-modprobe"); err == nil {
		e.Publish = mig.PublishWith(path)
	}
	return e, nil
}

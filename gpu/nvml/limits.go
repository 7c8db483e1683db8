//go:build cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// HasMemoryLimits reports whether the driver exports the call that holds the
// VRAM of a cgroup to a limit (R615 on). It asks the loaded library only.
func (l *Library) HasMemoryLimits() bool {
	return l.lib.Extensions().LookupSymbol("nvmlDeviceSetMemoryLimits_v1") == nil
}

// SetMemoryLimits holds the memory of a cgroup, named by its full path below
// the mount, to limits on one whole GPU. Soft 0 and hard gpu.Unlimited are no
// limits. Root only. It matches gpu.ErrNoCgroup, gpu.ErrNoMemoryLimits (the
// controller dmem is not enabled for the cgroup), ErrNotSupported (MIG, an older
// driver, the root cgroup) and ErrNoPermission.
func (l *Library) SetMemoryLimits(ctx context.Context, u gpu.UUID, cgroup string, soft, hard gpu.Bytes) error {
	_, err := limitsCall(ctx, l, "nvmlDeviceSetMemoryLimits_v1", u, func(d nvml.Device) (struct{}, nvml.Return) {
		return struct{}{}, d.SetMemoryLimits_v1(cgroup, uint64(soft), uint64(hard))
	})
	if err != nil {
		return fmt.Errorf("set memory limits of %s for %s: %w", u, cgroup, err)
	}
	return nil
}

// MemoryLimits reads the limits of a cgroup on one GPU, and what it uses. It
// matches what SetMemoryLimits does, and gpu.ErrNoMemoryLimits where there are
// none. Where the driver counts by itself (its back-end misc) "not supported" is
// its word for that, too, so that error matches both.
func (l *Library) MemoryLimits(ctx context.Context, u gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	got, err := limitsCall(ctx, l, "nvmlDeviceGetMemoryLimits_v1", u,
		func(d nvml.Device) (nvml.MemoryLimits_v1, nvml.Return) {
			return d.GetMemoryLimits_v1(cgroup)
		})
	if err != nil {
		return gpu.MemoryLimits{}, fmt.Errorf("read memory limits of %s for %s: %w", u, cgroup, err)
	}
	return gpu.MemoryLimits{Soft: gpu.Bytes(got.SoftLimit), Hard: gpu.Bytes(got.HardLimit),
		Used: gpu.Bytes(got.CurrentUsed)}, nil
}

// limitsCall makes one of the two calls. A symbol that is missing would end the
// process, so it is looked up first.
func limitsCall[T any](ctx context.Context, l *Library, name string, u gpu.UUID,
	call func(nvml.Device) (T, nvml.Return)) (T, error) {
	return run(ctx, l.worker, setLimit, func() (T, error) {
		var none T
		if err := l.lib.Extensions().LookupSymbol(name); err != nil {
			return none, fmt.Errorf("%w: its NVML has no %s (R615 on)", ErrNotSupported, name)
		}
		l.worker.step("nvmlDeviceGetHandleByUUID of " + u.String())
		d, ret := l.lib.DeviceGetHandleByUUID(u.String())
		if ret != nvml.SUCCESS {
			return none, callError(ret)
		}
		l.worker.step(name + " of " + u.String())
		v, ret := call(d)
		return v, limitsError(name, ret)
	})
}

// limitsError is nil for success. The codes are those of nvml.h; "not found"
// for a cgroup without the controller's files is in NVIDIA's MPS documentation
// (release 615, "MPS v3 Memory Partitioning").
func limitsError(name string, ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_OPERATING_SYSTEM:
		return gpu.ErrNoCgroup
	case nvml.ERROR_NOT_FOUND:
		return gpu.ErrNoMemoryLimits
	case nvml.ERROR_INVALID_ARGUMENT:
		return fmt.Errorf("the limits are refused: "+
			"the soft one is above the hard one, or one above the GPU's memory (NVML return code %d)", int(ret))
	case nvml.ERROR_NOT_SUPPORTED:
		if name == "nvmlDeviceGetMemoryLimits_v1" {
			return fmt.Errorf("%w, or %w", gpu.ErrNoMemoryLimits, ErrNotSupported)
		}
		return fmt.Errorf("%w; MIG devices and the root cgroup have no limits", ErrNotSupported)
	}
	return callError(ret)
}

//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// Persistence reports whether one GPU keeps its driver state while no process
// uses it. Not known is a value: a GPU or driver without the mode says so.
func (l *Library) Persistence(ctx context.Context, u gpu.UUID) (gpu.Measured[bool], error) {
	const name = "nvmlDeviceGetPersistenceMode"
	on, err := run(ctx, l.worker, readLimit, func() (bool, error) {
		if l.lib.Extensions().LookupSymbol(name) != nil {
			return false, ErrNotSupported
		}
		l.worker.step("nvmlDeviceGetHandleByUUID of " + u.String())
		d, ret := l.lib.DeviceGetHandleByUUID(u.String())
		if ret != nvml.SUCCESS {
			return false, callError(ret)
		}
		l.worker.step(name + " of " + u.String())
		mode, ret := d.GetPersistenceMode()
		if ret != nvml.SUCCESS {
			return false, callError(ret)
		}
		return mode == nvml.FEATURE_ENABLED, nil
	})
	if errors.Is(err, ErrNotSupported) {
		return gpu.Measured[bool]{}, nil
	}
	if err != nil {
		return gpu.Measured[bool]{}, fmt.Errorf("read persistence mode of %s: %w", u, err)
	}
	return gpu.Known(on), nil
}

//go:build cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// openError says why NVML cannot be initialised and what to do. It must not
// ask the library for its own words: it may not be loaded.
func openError(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: the loader finds no libnvidia-ml.so.1; install the NVIDIA driver", ErrNoLibrary)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: load it with modprobe nvidia, and see dmesg if that does not help", ErrNoDriver)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%w: the driver was upgraded under the running kernel module (driver/library version mismatch); "+
			"quiesce the node and load the new module, or reboot: gpuslot node quiesce", ErrMismatch)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: it needs read and write access to /dev/nvidiactl and /dev/nvidia0 and above; "+
			"run it as root or correct their modes", ErrNoPermission)
	}
	return fmt.Errorf("NVML does not start (NVML return code %d): see dmesg for NVRM lines", int(ret))
}

// callError is what one call of the initialised library returned.
func callError(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_NO_PERMISSION:
		return ErrNoPermission
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return ErrNotSupported
	case nvml.ERROR_GPU_IS_LOST:
		return lostError{}
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_GPU_NOT_FOUND:
		return fmt.Errorf("no such GPU on this node (NVML return code %d)", int(ret))
	}
	return fmt.Errorf("%s (NVML return code %d)", ret.Error(), int(ret))
}

// lostError is NVML's GPU_IS_LOST.
type lostError struct{}

func (lostError) Error() string {
	return "the GPU has fallen off the bus (GPU_IS_LOST): drain the node and power-cycle it, and see dmesg for Xid 79"
}

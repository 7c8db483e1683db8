//go:build cgo

package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestErrors: every failure of NVML is an error, and those that callers tell apart are.
func TestErrors(t *testing.T) {
	for ret, want := range map[nvml.Return]error{
		nvml.ERROR_LIBRARY_NOT_FOUND:       ErrNoLibrary,
		nvml.ERROR_DRIVER_NOT_LOADED:       ErrNoDriver,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: ErrMismatch,
		nvml.ERROR_NO_PERMISSION:           ErrNoPermission,
		nvml.ERROR_UNKNOWN:                 nil,
	} {
		if err := openError(ret); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("initialisation with %d: %v, want %v", int(ret), err, want)
		}
	}
	for ret, want := range map[nvml.Return]error{
		nvml.ERROR_NO_PERMISSION:      ErrNoPermission,
		nvml.ERROR_NOT_SUPPORTED:      ErrNotSupported,
		nvml.ERROR_FUNCTION_NOT_FOUND: ErrNotSupported,
		nvml.ERROR_GPU_IS_LOST:        lostError{},
		nvml.ERROR_NOT_FOUND:          nil,
		nvml.ERROR_GPU_NOT_FOUND:      nil,
		nvml.ERROR_UNKNOWN:            nil,
		nvml.ERROR_TIMEOUT:            nil,
	} {
		if err := callError(ret); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("a call with %d: %v, want %v", int(ret), err, want)
		}
	}
}

// Package nvml reads one node's inventory through NVIDIA's management library
// and sets compute modes. It is the only package of the program that needs
// cgo; built without cgo it compiles and Open says so. It owns no policy and
// keeps no state but the loaded library. Start at Open.
//
// NVML cannot be interrupted: a call into a hanging driver returns when the
// driver does. Calls therefore run in one goroutine, one at a time, and a
// caller whose context ends gets an error that names the call that hangs.
package nvml

import "errors"

// What an operator has to tell apart; match with errors.Is.
var (
	// ErrNoLibrary: libnvidia-ml.so.1 is not installed.
	ErrNoLibrary = errors.New("NVML is not installed")
	// ErrNoDriver: the kernel driver is not loaded; it may come later.
	ErrNoDriver = errors.New("the NVIDIA kernel driver is not loaded")
	// ErrMismatch: the library was replaced under the loaded kernel module, as an
	// upgrade of the driver does.
	ErrMismatch = errors.New("the NVIDIA kernel module that is loaded has another version than libnvidia-ml.so.1")
	// ErrNoPermission: the account may not do this.
	ErrNoPermission = errors.New("NVML refuses this account")
	// ErrNotSupported: this GPU, or this driver, does not have it.
	ErrNotSupported = errors.New("not supported by this GPU or driver")
	// ErrNotBuilt: the program was built without cgo.
	ErrNotBuilt = errors.New("built without cgo, so NVML cannot be used: build with CGO_ENABLED=1")
)

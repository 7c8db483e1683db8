// Package nvml reads one node's inventory through NVIDIA's management library
// and sets compute modes. It is the only package of the program that needs
// cgo; built without cgo it compiles and Open says so. It owns no policy and
// keeps no state but the loaded library. Start at Open.
//
// NVML cannot be interrupted: a call into a hanging driver returns when the
// driver does. Calls therefore run in one goroutine, one at a time, and a
// caller whose context ends gets an error that names the call that hangs.
package nvml

import (
	"errors"
	"strings"
)

// What an operator has to tell apart; match with errors.Is.
var (
	// ErrNoLibrary: libnvidia-ml.so.1 is not installed.
	ErrNoLibrary = errors.New("NVML is not installed")
	// ErrNoDriver: the kernel driver is not loaded; it may come later.
	ErrNoDriver = errors.New("the NVIDIA kernel driver is not loaded")
	// ErrNoPermission: the account may not do this.
	ErrNoPermission = errors.New("NVML refuses this account")
	// ErrNotSupported: this GPU, or this driver, does not have it.
	ErrNotSupported = errors.New("not supported by this GPU or driver")
	// ErrNotBuilt: the program was built without cgo.
	ErrNotBuilt = errors.New("built without cgo, so NVML cannot be used: build with CGO_ENABLED=1, or read a recorded inventory with --inventory FILE")
)

// PartialError comes with a valid inventory: some GPUs could not be read, and
// the inventory holds all the others. One lost card must not lose the node.
type PartialError struct {
	// Unreadable holds one error for each GPU that is missing, in the order of
	// NVML's indices.
	Unreadable []error
}

func (e *PartialError) Error() string {
	var lines []string
	for _, err := range e.Unreadable {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is look into each GPU's error.
func (e *PartialError) Unwrap() []error { return e.Unreadable }

package mps

import (
	"errors"
	"fmt"

	"github.com/gpuslot/gpuslot/gpu"
)

// Fault is a kind of fault of a control daemon, fit for a metric label.
type Fault string

// The faults of a control daemon.
const (
	NotInstalled Fault = "not-installed" // nvidia-cuda-mps-control is not on this machine
	PathTooLong  Fault = "path-too-long" // the pipe directory does not fit into a socket address
	Unwritable   Fault = "unwritable"    // the pipe directory cannot be used
	NotRunning   Fault = "not-running"   // no daemon holds the control lock
	Suspended    Fault = "suspended"     // the daemon is stopped by a signal or a debugger
	Wedged       Fault = "wedged"        // the daemon lives but does not answer
	Busy         Fault = "busy"          // another program keeps its only connection
	Gone         Fault = "gone"          // the daemon ended or was replaced meanwhile
	WrongLimits  Fault = "wrong-limits"  // limits read back are not those set
	Refused      Fault = "refused"       // the daemon does not take our commands
	Foreign      Fault = "foreign"       // another account's process holds the control lock
	NoServer     Fault = "no-server"     // the server asked for is not, or no longer, there
	Invalid      Fault = "invalid"       // the wish itself is impossible
)

// Error is a fault of one control daemon. Its text ends with what to do.
type Error struct {
	GPU   gpu.UUID
	Fault Fault
	// Text is the sentence without the GPU.
	Text string
	// Differs says, with WrongLimits, which limits are not those wanted.
	Differs []Difference
	// Err is the cause, where there is one.
	Err error
}

func (e *Error) Error() string {
	if e.GPU == "" {
		return e.Text
	}
	return fmt.Sprintf("control daemon of %s: %s", e.GPU, e.Text)
}

func (e *Error) Unwrap() error { return e.Err }

// FaultOf names the fault in an error; empty when it holds none.
func FaultOf(err error) Fault {
	var e *Error
	if errors.As(err, &e) {
		return e.Fault
	}
	return ""
}

// DifferencesOf are the limits that an error found to be others than wanted.
func DifferencesOf(err error) []Difference {
	var e *Error
	if errors.As(err, &e) {
		return e.Differs
	}
	return nil
}

func (d *Daemon) fault(f Fault, cause error, format string, args ...any) error {
	return &Error{GPU: d.gpu, Fault: f, Text: fmt.Sprintf(format, args...), Err: cause}
}

// Reason says what is wrong with a control daemon, as a sentence about one GPU that is
// named before it.
func Reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return "its control daemon: " + e.Text
	}
	return fmt.Sprintf("its control daemon: %v: look at gpuslot status", err)
}

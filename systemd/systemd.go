// Package systemd owns the unit files and the adapter to the service manager:
// readiness, watchdog, socket activation, and control of the
// gpuslot-mps@<uuid>.service instances. It knows nothing of GPUs beyond their
// UUIDs as instance names. Start at MPSUnits.
package systemd

import "github.com/coreos/go-systemd/v22/util"

// Booted reports whether systemd is the service manager of this machine.
func Booted() bool { return util.IsRunningSystemd() }

// Package systemd owns the unit files and the adapter to the service manager:
// readiness, watchdog, socket activation, and control of the
// gpuslot-mps@<uuid>.service instances. It knows nothing of GPUs beyond their
// UUIDs as instance names. Start at MPSUnits.
package systemd

import (
	"embed"
	"io/fs"

	"github.com/coreos/go-systemd/v22/util"
)

//go:embed units
var files embed.FS

// Units are the unit files of gpuslot, and drop-ins of systemd's own, by their
// place below /usr/lib/systemd/system, where packages install them.
func Units() fs.FS {
	units, err := fs.Sub(files, "units")
	if err != nil {
		panic(err) // only an invalid path, and this one is a constant
	}
	return units
}

// Booted reports whether systemd is the service manager of this machine.
func Booted() bool { return util.IsRunningSystemd() }

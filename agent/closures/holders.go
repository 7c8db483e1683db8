package closures

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Holders are the processes that have devices of the driver open, under whatever name, and so keep its
// modules from being unloaded, by PID. This process is not among them. With an error there may be more.
func Holders(fs process.FS) (holders []api.NodeHolder, err error) {
	text, err := os.ReadFile(filepath.Join(cmp.Or(fs.Root, "/proc"), "devices"))
	if err != nil {
		return nil, err
	}
	majors := driverMajors(string(text))
	pids, err := fs.PIDs()
	errs := []error{err}
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		its, err := fs.Opens(pid, func(f process.File) bool { return majors[unix.Major(f.Device)] })
		errs = append(errs, err)
		if its {
			holders = append(holders, api.NodeHolder{
				PID: pid, Name: foreign.Clip(fs.Comm(pid)), Unit: foreign.Clip(fs.Unit(pid)),
			})
		}
	}
	return holders, errors.Join(errs...)
}

// driverMajors are the major numbers of the driver's character devices in /proc/devices: nvidia,
// nvidia-uvm, nvidia-caps and others.
func driverMajors(text string) map[uint32]bool {
	majors := map[uint32]bool{}
	characters, _, _ := strings.Cut(text, "Block devices:")
	for line := range strings.Lines(characters) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if major, err := strconv.ParseUint(number, 10, 12); err == nil && major > 0 && strings.HasPrefix(name, "nvidia") {
			majors[uint32(major)] = true
		}
	}
	return majors
}

package closures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// The look for holders is bounded: users may have very many processes with very many open files. See process.Openers.
const (
	mostHolders   = 64
	holdersWithin = 2 * time.Second
)

// Holders are the processes that have devices of the driver open, under whatever name, and so keep its
// modules from being unloaded, by PID. This process is not among them. With an error there may be more.
func Holders(fs process.FS) (holders []api.NodeHolder, err error) {
	text, err := os.ReadFile(filepath.Join(cmp.Or(fs.Root, "/proc"), "devices"))
	if err != nil {
		return nil, err
	}
	majors := driverMajors(string(text))
	ctx, cancel := context.WithTimeout(context.Background(), holdersWithin)
	defer cancel()
	var errs []error
	defer func() { nameUnits(fs, holders) }()
	for _, o := range process.Openers(ctx, fs, func(f process.File) bool { return majors[unix.Major(f.Device)] }) {
		switch {
		case o.PID == 0:
			errs = append(errs, errors.New(o.Unclear))
		case o.Unclear != "":
			errs = append(errs, fmt.Errorf("process %d %s", o.PID, o.Unclear))
		case len(holders) == mostHolders:
			return holders, errors.Join(append(errs, errors.New("more processes have them open than are listed"))...)
		default:
			holders = append(holders, api.NodeHolder{PID: o.PID, Name: foreign.Clip(fs.Comm(o.PID))})
		}
	}
	return holders, errors.Join(errs...)
}

// nameUnits fills in the units of holders.
func nameUnits(fs process.FS, holders []api.NodeHolder) {
	var pids []int
	for _, h := range holders {
		pids = append(pids, h.PID)
	}
	units := fs.Units(pids, process.UnitsWithin)
	for i, h := range holders {
		holders[i].Unit = foreign.Clip(units[h.PID])
	}
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

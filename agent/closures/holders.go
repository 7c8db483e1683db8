package closures

import (
	"os"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Holders are the processes that have the driver's device files open, and so keep its modules from
// being unloaded, by PID. This process is not among them.
func Holders(fs process.FS) (holders []api.NodeHolder) {
	for _, pid := range slices.Sorted(slices.Values(fs.PIDs())) {
		if pid != os.Getpid() && fs.Opens(pid, func(path string) bool { return strings.HasPrefix(path, "/dev/nvidia") }) {
			holders = append(holders, api.NodeHolder{
				PID: pid, Name: foreign.Clip(fs.Comm(pid)), Unit: foreign.Clip(fs.Unit(pid)),
			})
		}
	}
	return holders
}

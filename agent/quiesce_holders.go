package agent

import (
	"os"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// deviceHolders are the processes that have the driver's device files open, and
// so keep its modules from being unloaded. The agent is not among them.
func deviceHolders(fs process.FS) []api.NodeHolder {
	by := map[int]api.NodeHolder{}
	for _, pid := range fs.PIDs() {
		if pid != os.Getpid() && fs.Opens(pid, isDevice) {
			by[pid] = api.NodeHolder{PID: pid, Name: foreign.Clip(fs.Comm(pid)), Unit: foreign.Clip(fs.Unit(pid))}
		}
	}
	return sortedHolders(by)
}

func isDevice(path string) bool { return strings.HasPrefix(path, "/dev/nvidia") }

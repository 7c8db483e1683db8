package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// deviceHolders are the processes that have the driver's device files open, and
// so keep its modules from being unloaded. The agent is not among them.
func deviceHolders(proc string) []api.NodeHolder {
	by, fs := map[int]api.NodeHolder{}, procFS{proc}
	for _, pid := range fs.pids() {
		dir := fs.thread(pid)
		if pid != os.Getpid() && opensDevice(dir) {
			by[pid] = api.NodeHolder{PID: pid, Name: nameIn(dir + "/comm"), Unit: unitIn(dir + "/cgroup")}
		}
	}
	return sortedHolders(by)
}

// opensDevice says whether a thread, by its directory, has a device file of the driver open.
func opensDevice(dir string) bool {
	files, _ := os.ReadDir(filepath.Join(dir, "fd")) // of a process that is gone there are none
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
		return err == nil && strings.HasPrefix(to, "/dev/nvidia")
	})
}

func firstLine(path string) string {
	b, _ := os.ReadFile(path) // a process that is gone has no name
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// nameIn is what a process calls itself.
func nameIn(path string) string { return foreign.Clip(firstLine(path)) }

// unitIn is the systemd unit that a process runs in, by its cgroup.
func unitIn(path string) string {
	unit := ""
	for part := range strings.SplitSeq(firstLine(path), "/") {
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			unit = foreign.Clip(part)
		}
	}
	return unit
}

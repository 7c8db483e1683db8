package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
)

// deviceHolders are the processes that have the driver's device files open, and
// so keep its modules from being unloaded. The agent is not among them.
func deviceHolders(proc string) []api.NodeHolder {
	links, _ := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/*")) // fails on a bad pattern only
	by := map[int]api.NodeHolder{}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, "/dev/nvidia") {
			continue // closed meanwhile, or something else
		}
		dir := filepath.Dir(filepath.Dir(link))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, known := by[pid]; !known {
			by[pid] = api.NodeHolder{PID: pid, Name: nameIn(dir + "/comm"), Unit: unitIn(dir + "/cgroup")}
		}
	}
	return sortedHolders(by)
}

func firstLine(path string) string {
	b, _ := os.ReadFile(path) // a process that is gone has no name
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// nameIn is what a process calls itself.
func nameIn(path string) string { return clip(firstLine(path)) }

// unitIn is the systemd unit that a process runs in, by its cgroup.
func unitIn(path string) string {
	unit := ""
	for part := range strings.SplitSeq(firstLine(path), "/") {
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			unit = clip(part)
		}
	}
	return unit
}

package truth

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// nodesOf are the nodes of the driver that a process has open or mapped, each once.
func nodesOf(pid int) (string, error) {
	var its []string
	for _, dir := range []string{"fd", "map_files"} {
		dir = fmt.Sprintf("/proc/%d/%s/", pid, dir)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			to, _ := os.Readlink(dir + e.Name()) // it may be closed by now
			if strings.HasPrefix(to, "/dev/nvidia") && !slices.Contains(its, to) {
				its = append(its, to)
			}
		}
	}
	slices.Sort(its)
	if len(its) == 0 {
		return "", errors.New("no node of the driver: the GPU is simulated")
	}
	return strings.Join(its, " "), nil
}

var gpuNode = regexp.MustCompile(`/dev/nvidia[0-9]+\b`)

// usesNode claims that a process has the node of a GPU open or mapped.
func usesNode(whose, name string) Claim {
	return Claim{whose + " has the device node of its GPU open or mapped.", []string{name + "_nodes"}, func(v Values) bool {
		return gpuNode.MatchString(v.Text(name + "_nodes"))
	}}
}

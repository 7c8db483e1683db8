package deep

import (
	"fmt"
	"strconv"
)

// Inside are the processes in a cgroup and below it. With an error there may be more. The look may take long.
func Inside(cgroup string) (pids []int, err error) {
	b := list(cgroup)
	for _, text := range b.pids {
		if pid, err := strconv.Atoi(text); err == nil {
			pids = append(pids, pid)
		}
	}
	if b.many {
		return pids, fmt.Errorf("%s has more than %d cgroups below it", cgroup, MostBelow)
	}
	return pids, b.err
}

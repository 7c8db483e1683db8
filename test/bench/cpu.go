package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/test/node"
)

// cpuParts are a node's work by the cgroups that do it, which are relative to the
// root of the node's tree. They stand beside each other, the last holds them all.
var cpuParts = []struct{ name, cgroup string }{
	{"HTCondor's daemons, starters and hooks", "system.slice/condor.service/leaf"},
	{"the jobs and their supervisors", "system.slice/condor.service/htcondor"},
	{"gpuslotd", "system.slice/gpuslotd.service"},
	{"the node as a whole", "."},
}

// cpuTime is what a node used up to now, by part.
func cpuTime(n *node.Node) ([]time.Duration, error) {
	out := make([]time.Duration, len(cpuParts))
	for i, p := range cpuParts {
		dir := filepath.Join(n.Cgroup(), p.cgroup)
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			continue // the plain pool has no such part
		}
		var err error
		if out[i], err = cgroupTime(dir); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cgroupTime is usage_usec of cpu.stat, which the kernel keeps of every cgroup,
// with those that were below it and have gone.
func cgroupTime(dir string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", dir)
}

// round is what one pool did with the jobs.
type round struct {
	perSecond float64
	// cpu is the time for each job, by part.
	cpu []time.Duration
}

// cpuRows say where the two pools' CPU time went: the median of the rounds.
func cpuRows(ours, plain []round) []row {
	middle := func(rounds []round, part int) time.Duration {
		var all []time.Duration
		for _, r := range rounds {
			all = append(all, r.cpu[part])
		}
		slices.Sort(all)
		return all[len(all)/2].Round(10 * time.Microsecond)
	}
	var rows []row
	for i, p := range cpuParts {
		rows = append(rows, row{what: "  CPU for each job: " + p.name, got: fmt.Sprintf("%v, plain %v", middle(ours, i), middle(plain, i))})
	}
	return rows
}

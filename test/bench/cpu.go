package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

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

// daemons are HTCondor's own, with their work and that of the processes that they waited
// for: below the schedd these are shadows, below the startd starters with hooks and jobs.
var daemons = []string{"condor_schedd", "condor_startd", "condor_procd", "condor_collector", "condor_negotiator", "condor_master", "condor_shared_port"}

// parts are the names of what cpuTime returns, in order.
func parts() []string {
	var out []string
	for _, p := range cpuParts {
		out = append(out, p.name)
	}
	for _, d := range daemons {
		out = append(out, d, d+", what it waited for")
	}
	return out
}

// daemonTime is the CPU time of HTCondor's daemons on a node, in the order of parts.
func daemonTime(n *node.Node) ([]time.Duration, error) {
	out := make([]time.Duration, 2*len(daemons))
	text, err := os.ReadFile(filepath.Join(n.Cgroup(), cpuParts[0].cgroup, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		p, err := procfs.NewProc(pid)
		if err != nil {
			continue // it has ended
		}
		stat, err := p.Stat()
		if err != nil {
			continue
		}
		for i, d := range daemons {
			if strings.HasPrefix(d, stat.Comm) && len(stat.Comm) >= min(len(d), 15) {
				out[2*i] += time.Duration(stat.UTime+stat.STime) * tick
				out[2*i+1] += time.Duration(stat.CUTime+stat.CSTime) * tick
			}
		}
	}
	return out, nil
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
	more, err := daemonTime(n)
	return append(out, more...), err
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

// middleCPU is the median of the rounds' CPU time for each job, of one part.
func middleCPU(rounds []round, part int) time.Duration {
	var all []time.Duration
	for _, r := range rounds {
		all = append(all, r.cpu[part])
	}
	return median(all).Round(10 * time.Microsecond)
}

// moreCPU is the median of what our jobs took more than those of the same round in the plain pool.
func moreCPU(ours, plain []round, part int) time.Duration {
	var all []time.Duration
	for i, r := range ours {
		all = append(all, r.cpu[part]-plain[i].cpu[part])
	}
	return median(all).Round(10 * time.Microsecond)
}

// cpuRows say where the two pools' CPU time went.
func cpuRows(ours, plain []round) []row {
	var rows []row
	for i, name := range parts() {
		a, b := middleCPU(ours, i), middleCPU(plain, i)
		if a != 0 || b != 0 {
			rows = append(rows, row{what: "  CPU for each job: " + name, got: fmt.Sprintf("%v, plain %v: %v more", a, b, moreCPU(ours, plain, i))})
		}
	}
	return rows
}

package main

import (
	"cmp"
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
	{"the control daemons", `system.slice/system-gpuslot\x2dmps.slice`},
	{"the journal", "system.slice/systemd-journald.service"},
	{"the node as a whole", "."},
}

// daemons are HTCondor's own, with their work and that of the processes that they waited
// for: below the schedd these are shadows, below the startd starters with hooks and jobs.
var daemons = []string{"condor_schedd", "condor_collector", "condor_negotiator", "condor_startd", "condor_procd", "condor_master", "condor_shared_port"}

// elsewhere is how many of the daemons run on other machines than the worker node, but in a test's pool.
const elsewhere = 3

// parts are the names of what cpuTime returns, in order.
func parts() []string {
	var out []string
	for _, p := range cpuParts {
		out = append(out, p.name)
	}
	for _, d := range daemons {
		out = append(out, d, d+", what it waited for")
	}
	return append(out, "the worker's part")
}

// worker is the time of a worker node, which is the last part, from all others: that of the node without
// the access point with its shadows, the central manager, and the bench's own commands.
func worker(all []time.Duration) (sum time.Duration) {
	for _, t := range all[:len(cpuParts)-1] {
		sum += t
	}
	for _, t := range all[len(cpuParts) : len(cpuParts)+2*elsewhere] {
		sum -= t
	}
	return sum
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
	out = append(out, more...)
	return append(out, worker(out)), err
}

// measure returns a function that says what a node used since now, by part.
func measure(n *node.Node) (used func() ([]time.Duration, error), err error) {
	before, err := cpuTime(n)
	return func() ([]time.Duration, error) {
		now, err := cpuTime(n)
		for i := range now {
			now[i] -= before[i]
		}
		return now, err
	}, err
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
	took      time.Duration
	// cpu is the time for each job, by part.
	cpu []time.Duration
	// rest is the time that the pool uses in a second at rest, by part: while the others have the jobs.
	rest []time.Duration
	// slow is how much longer than the median a shadow took. It does the same for each pool: the machine was slow.
	slow float64
}

// shadows is the part of the shadows.
var shadows = len(cpuParts) + 1

// compareShadows sets slow of all rounds.
func compareShadows(pools [][]round) {
	var all []time.Duration
	for _, rounds := range pools {
		for _, r := range rounds {
			all = append(all, r.cpu[shadows])
		}
	}
	for _, rounds := range pools {
		for i := range rounds {
			rounds[i].slow = float64(rounds[i].cpu[shadows]) / float64(median(all))
		}
	}
}

// started is what the starts cost in a part, on a machine of the same speed: without what the pool does at rest, too.
// That would be more for each job the slower the machine is.
func (r round) started(part int) time.Duration {
	return time.Duration((float64(r.cpu[part]) - float64(r.rest[part])*r.took.Seconds()/manyJobs) / cmp.Or(r.slow, 1))
}

// resting is what a part uses in a second at rest.
func (r round) resting(part int) time.Duration { return r.rest[part] }

// medianOf is the median of the rounds, of one part.
func medianOf(rounds []round, of func(round, int) time.Duration, part int) time.Duration {
	var all []time.Duration
	for _, r := range rounds {
		all = append(all, of(r, part))
	}
	return median(all).Round(10 * time.Microsecond)
}

// more is the median of what our pool took more than the plain pool in the same round.
func more(ours, plain []round, of func(round, int) time.Duration, part int) time.Duration {
	var all []time.Duration
	for i, r := range ours {
		all = append(all, of(r, part)-of(plain[i], part))
	}
	return median(all).Round(10 * time.Microsecond)
}

// cpuRows say where the pools' CPU time went.
func cpuRows(ours, plain, least []round) []row {
	var rows []row
	for _, kind := range []struct {
		name string
		of   func(round, int) time.Duration
	}{{"for each job", round.started}, {"a second at rest", round.resting}} {
		for i, name := range parts() {
			a, b := medianOf(ours, kind.of, i), medianOf(plain, kind.of, i)
			if a != 0 || b != 0 {
				rows = append(rows, row{what: fmt.Sprintf("  CPU %s: %s", kind.name, name), got: fmt.Sprintf("%v, plain %v: %v more, HTCondor's %v",
					a, b, more(ours, plain, kind.of, i), more(least, plain, kind.of, i))})
			}
		}
	}
	return rows
}

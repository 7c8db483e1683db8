package process

import "time"

const mostUnits = 64

// UnitsWithin is how long a list of processes for an operator may wait for their units.
const UnitsWithin = 100 * time.Millisecond

// Units are the systemd units that processes run in, by their cgroups: the innermost service or scope of each. One
// that is in none, or has ended, is not among them. Before Linux 6.8 the kernel may take long to say where a process
// is; what it has not said in time is left out, and so are the last of more than 64.
func (fs FS) Units(pids []int, within time.Duration) map[int]string {
	type unit struct {
		pid  int
		name string
	}
	if pids = pids[:min(len(pids), mostUnits)]; len(pids) == 0 {
		return nil
	}
	found := make(chan unit, len(pids)) // buffered: the receiver may have given up
	go func() {
		defer close(found)
		for _, pid := range pids {
			b, _ := fs.Cgroup(pid) // a process that has ended is in none
			found <- unit{pid, unitOf(string(b))}
		}
	}()
	units, late := map[int]string{}, time.After(within)
	for {
		select {
		case u, more := <-found:
			if !more {
				return units
			}
			if u.name != "" {
				units[u.pid] = u.name
			}
		case <-late:
			return units
		}
	}
}

// Package budget holds jobs on shared GPUs to their VRAM by the driver itself, where it can
// (NVIDIA's release 615 on): by a limit on the cgroup of each job. The limit is set before
// the job's program runs, or as soon as the first process of the job is seen. Its
// reservation is given back before HTCondor removes the cgroup, and repaired where the
// cgroup went first.
//
// Start at Limits: Run is its loop, Take limits one job, EndReservation ends what the
// driver keeps for it. What a limit needs is decided in reservation.go, without side
// effects; the reservations are in a file for the next agent.
package budget

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// reservation is what the driver was told to hold for one job.
type reservation struct {
	GPU     gpu.UUID        `json:"gpu"`
	Starter starter.Starter `json:"starter"`
	Job     string          `json:"job,omitempty"`
	// Hard is the job's budget. Soft is what the driver keeps for the job, at its
	// cgroup and at every one above: the budget, too, and 0 from the job's end on.
	Hard gpu.MiB `json:"hard_mib"`
	Soft gpu.MiB `json:"soft_mib"`
	// Path is the job's cgroup and those above it, without the root.
	Path []starter.Cgroup `json:"path"`
}

func (r reservation) key() jobs.Key { return jobs.KeyOf(r.Starter, r.GPU) }

// names are what logs say of a reservation.
func (r reservation) names() []any {
	return []any{"slot", r.Starter.Slot, "job", r.Job, "gpu", r.GPU}
}

// cgroup is the job's.
func (r reservation) cgroup() starter.Cgroup { return r.Path[0] }

// slice is the one above the job's cgroup that is the job's alone; false where HTCondor
// makes none.
func (r reservation) slice() (starter.Cgroup, bool) {
	slice, ok := starter.JobSlice(r.cgroup().Path)
	if !ok || len(r.Path) < 2 || r.Path[1].Path != slice {
		return starter.Cgroup{}, false
	}
	return r.Path[1], true
}

// as says whether the driver's limits are those of the reservation.
func (r reservation) as(l gpu.MemoryLimits) bool {
	return l.Soft == gpu.Bytes(r.Soft.Bytes()) && l.Hard == gpu.Bytes(r.Hard.Bytes())
}

// limit is a reservation with what the driver last said of it.
type limit struct {
	reservation
	// Proved is when the limits read back as set; zero if they did not, last time.
	proved time.Time
	// wide: the job's slice has the hard limit, too, and the driver adds up below it. It
	// binds processes of the job that are in the slice, but not in the job's cgroup.
	wide bool
	used gpu.Bytes
	// had are the controllers' files before the limit was first set, or as this agent took it over.
	had controls
}

// confirmedFor is how long a limit that was read back counts as there.
const confirmedFor = time.Minute

// holds says whether the limit stands as far as is known.
func (l limit) holds(now time.Time) bool {
	return !l.proved.IsZero() && now.Sub(l.proved) < confirmedFor
}

// care is what a reservation needs.
type care string

const (
	careCheck  care = "check"  // read it back
	careRenew  care = "renew"  // set it again
	careClear  care = "clear"  // its job ended, its cgroup is still there
	careRepair care = "repair" // its cgroup went with it: the ones above keep it
	careForget care = "forget" // nothing is left of it
)

// care decides. There: its cgroup exists; alive: its job's starter runs; budget
// is the job's now, 0 if it is not known.
func (r reservation) care(there, alive bool, budget gpu.MiB) care {
	switch {
	case !there && r.Soft == 0:
		return careForget
	case !there:
		return careRepair
	case !alive:
		return careClear
	case budget != 0 && budget != r.Hard:
		return careRenew
	}
	return careCheck
}

// leak is how much of the soft limit of a cgroup is that of a reservation below
// it that is gone: never more than what the living ones do not explain. Soft is
// what the driver says, living the reservations that it still has.
func (r reservation) leak(above starter.Cgroup, soft gpu.Bytes, living []limit) gpu.Bytes {
	for _, l := range living {
		if l.below(above) {
			soft -= min(soft, gpu.Bytes(l.Soft.Bytes()))
		}
	}
	return min(soft, gpu.Bytes(r.Soft.Bytes()))
}

// below says whether a cgroup is one of those above the job's.
func (r reservation) below(above starter.Cgroup) bool {
	for _, d := range r.Path[1:] {
		if d == above {
			return true
		}
	}
	return false
}

// adrift is what to do by hand where a reservation cannot be repaired.
func (r reservation) adrift(err error) string {
	return fmt.Sprintf("%s of %s stay reserved for a job of %s that ended, at the cgroups above %s: %v: "+
		"lower their soft limits (nvidia-smi memory-limits --set -n <cgroup> --soft-limit …), "+
		"or reboot the node when it is drained.",
		r.Soft, r.GPU, r.Starter.Slot, r.cgroup().Path, err)
}

// withoutDmem says whether the kernel has the controller dmem, but not for this
// cgroup: nobody enabled it in the cgroups above.
func withoutDmem(root, cgroup string) bool {
	have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil || !strings.Contains(" "+strings.TrimSpace(string(have))+" ", " dmem ") {
		return false
	}
	_, err = os.Lstat(filepath.Join(cgroup, "dmem.max"))
	return errors.Is(err, fs.ErrNotExist)
}

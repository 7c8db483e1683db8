package admission

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Health is what is known of one shared GPU, and of its control daemon.
type Health struct {
	// Closed says why the GPU takes no new jobs, and what to do; empty if nothing does.
	Closed string
	// Checked is the last one; its zero value means none since the agent started.
	Checked mps.Checked
	// Check is the finding of the cheap check, made just now without the
	// daemon's help: nil if the proven process still holds its lock and runs.
	Check error
	// Stale: an MPS server runs that was started under other limits, and it
	// would serve the job.
	Stale bool
	// PrivilegeChecks: only root and the daemon's own account may change
	// its limits, as a probe has shown.
	PrivilegeChecks bool
	// Watched: the memory of its processes is being read, and jobs over their
	// budgets are held.
	Watched bool
	// Unlisted is how much of the pool is in use by no process that NVML lists, and in no
	// budget.
	Unlisted gpu.MiB
	// ByDriver: the GPU has no control daemon. The driver alone holds jobs to their budgets.
	ByDriver bool
	// CgroupLimits: the cgroups of its jobs get limits, as far as is known.
	CgroupLimits bool
}

// Reason says why a GPU with this health takes no jobs; empty if it does.
func (h Health) Reason(now time.Time, most time.Duration) string {
	switch {
	case h.Closed != "":
		return h.Closed
	case h.ByDriver:
		return ""
	case h.Checked.At.IsZero():
		return "its control daemon has not proven its health yet: look at gpuslot status"
	case h.Check != nil:
		return mps.Reason(h.Check)
	case now.Sub(h.Checked.At) > most:
		return fmt.Sprintf("its control daemon last proved its health %s ago, and %s is the most: "+
			"look at gpuslot status",
			now.Sub(h.Checked.At).Round(time.Second), most)
	}
	return ""
}

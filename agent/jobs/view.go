package jobs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// View shows the job table to the functions that Admit and Look call, while they run.
// They must not keep it.
type View struct {
	processes Processes

	jobs []Job
	// unplaced are starters from before the agent's start, and those found since on an
	// observed node, of whose GPUs HTCondor has not told yet.
	unplaced []unplaced
	// elsewhere are starters whose slots have no GPU of the plan, by HTCondor's word:
	// all such of an observed node, and those whose jobs asked for one.
	elsewhere map[process.ID]bool
	// holds are the jobs that HTCondor is to hold, by their starters.
	holds map[starter.Starter]api.Hold
	// leaving are MIG devices that wait to go, or for a larger one in their room,
	// each with the reason.
	leaving map[gpu.UUID]string
	// full are GPUs on which HTCondor wanted more than the plan has.
	full map[gpu.UUID]bool
	// ended are the jobs whose end was seen within endedFor.
	ended []ended
}

// ended is a job of the past; seen is when its end was noted.
type ended struct {
	Job
	seen time.Time
}

const endedFor = time.Minute

// unplaced is a starter whose GPU is not known yet.
type unplaced struct {
	starter.Starter
	// asked counts the times that HTCondor told of its slots, but not of this.
	asked int
	// fresh: it came while the agent looked on.
	fresh bool
}

// On are the jobs on one GPU.
func (v *View) On(u gpu.UUID) []Job {
	return v.those(func(j *Job) bool { return j.GPU == u })
}

// HeldBy are the entries of a starter's job, one for each of its GPUs.
func (v *View) HeldBy(s starter.Starter) []Job {
	return v.those(func(j *Job) bool { return j.Starter.Is(s) })
}

func (v *View) those(are func(*Job) bool) (out []Job) {
	for i := range v.jobs {
		if are(&v.jobs[i]) {
			out = append(out, v.jobs[i])
		}
	}
	return out
}

// Has says whether a starter's job has a part of a GPU.
func (v *View) Has(s starter.Starter, u gpu.UUID) bool {
	return slices.ContainsFunc(v.jobs, func(j Job) bool { return j.GPU == u && j.Starter.Is(s) })
}

// Unknown says which job ran before the agent started and has a GPU that is not known;
// empty if there is none.
func (v *View) Unknown() string {
	if len(v.unplaced) == 0 {
		return ""
	}
	return fmt.Sprintf("%s runs since before gpuslotd started and the startd has not told on which GPU: "+
		"see whether condor_status -direct \"\" answers", v.unplaced[0].Slot)
}

// IsElsewhere says whether a starter's slot has no GPU of the plan, by HTCondor's word.
func (v *View) IsElsewhere(s starter.Starter) bool { return v.elsewhere[s.ID] }

// Leaves says why no new job may begin on a MIG device; empty if one may.
func (v *View) Leaves(u gpu.UUID) string { return v.leaving[u] }

// IsFull says whether HTCondor wanted more of a GPU than the plan has.
func (v *View) IsFull(u gpu.UUID) bool { return v.full[u] }

// NoteFull notes that it did. The note stays until a job ends there, or the plan changes.
func (v *View) NoteFull(u gpu.UUID) { v.full[u] = true }

// DropEnded drops the jobs whose starters have ended, and returns them.
func (v *View) DropEnded() (gone []Job) {
	now := time.Now()
	v.ended = slices.DeleteFunc(v.ended, func(e ended) bool { return now.Sub(e.seen) > endedFor })
	v.jobs = slices.DeleteFunc(v.jobs, func(j Job) bool {
		if v.processes.Runs(j.Starter.ID) {
			return false
		}
		j.Hold = v.holds[j.Starter]
		gone, v.ended = append(gone, j), append(v.ended, ended{j, now})
		delete(v.full, j.GPU)
		return true
	})
	for _, j := range gone {
		delete(v.holds, j.Starter)
	}
	v.unplaced = slices.DeleteFunc(v.unplaced, func(s unplaced) bool { return !v.processes.Runs(s.ID) })
	maps.DeleteFunc(v.elsewhere, func(s process.ID, _ bool) bool { return !v.processes.Runs(s) })
	return gone
}

// Locate gives a job process that left its parents behind the starter of its slot, if it
// runs as the job's account. Its errors say whom to ask as.
func (v *View) Locate(c *starter.Caller) error {
	if c.Starter.PID != 0 {
		return nil
	}
	s, ok := v.starterOf(c.Starter.Slot)
	if !ok {
		return errors.New("no job of " + c.Starter.Slot + " was admitted: " +
			"ask from the job's own process, or configure the PREPARE_JOB hook")
	}
	if of := v.HeldBy(s)[0].Account; of.Known && of.UID != c.UID {
		return fmt.Errorf("the job of %s runs as uid %d and the caller as uid %d: ask as the job's own account",
			c.Starter.Slot, of.UID, c.UID)
	}
	c.Starter = s
	return nil
}

// starterOf is the starter of a slot whose job is in the table, for a job's process that
// left its parents behind.
func (v *View) starterOf(slot string) (starter.Starter, bool) {
	for i := range v.jobs {
		if s := v.jobs[i].Starter; starter.SameSlot(s.Slot, slot) && v.processes.Runs(s.ID) {
			return s, true
		}
	}
	return starter.Starter{}, false
}

// awaited is a starter of which HTCondor has not told yet: its processes are its job's all
// the same.
func (v *View) awaited(is func(starter.Starter) bool) (starter.Starter, bool) {
	for _, u := range v.unplaced {
		if is(u.Starter) {
			return u.Starter, true
		}
	}
	return starter.Starter{}, false
}

// enter takes a job into the table: see Admit.
func (v *View) enter(j Job, believed bool) {
	for i, old := range v.jobs {
		if !old.Starter.Is(j.Starter) || old.GPU != j.GPU {
			continue
		}
		if old.Confirmed || !believed {
			if !old.Account.Known {
				v.jobs[i].Account = j.Account
			}
			return
		}
		j.Since, j.Work = old.Since, j.Work.or(old.Work)
		v.jobs[i] = j
		return
	}
	v.jobs = append(v.jobs, j)
}

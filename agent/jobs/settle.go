package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Ads is what HTCondor says of the slots of this node, and what the plan adds to
// that. Its functions are called while the table holds its lock: they must not wait.
type Ads struct {
	// Slots are by their short names, as condor.SlotName makes them.
	Slots map[string]condor.Slot
	// EnforcedBy is what enforces a budget on a GPU.
	EnforcedBy func(u gpu.UUID, budget gpu.MiB) string
	// Budget is the budget on a GPU of a slot with so much VRAM, in MiB: a share where
	// the job asked for none. Nil: it is the slot's VRAM.
	Budget func(u gpu.UUID, vram int64) gpu.MiB
	// Account finds the account of a slot's job; nil where no starter waits for a GPU.
	Account func(s starter.Starter, ad condor.Slot) starter.Account
	// Admitted says whether an account may use a GPU's control daemon; nil where none serves jobs.
	Admitted func(u gpu.UUID, uid uint32) bool
	// Observed finds the GPU that an id stands for where the site's own rules give
	// GPUs out; nil elsewhere, where ids are UUIDs.
	Observed func(ad condor.Slot, id string) (gpu.UUID, bool)
	// Began is when a process began, by its start time in clock ticks since boot. It is
	// there where observed is.
	Began func(started uint64, now time.Time) time.Time
}

// slot is that of a slot, if it can be read.
func (w Ads) slot(slot string) (condor.Slot, bool) {
	ad, ok := w.Slots[condor.SlotName(slot)]
	return ad, ok && ad.Unreadable == ""
}

// gpu is the GPU that an id of a slot stands for.
func (w Ads) gpu(ad condor.Slot, id string) (gpu.UUID, bool) {
	if w.Observed != nil {
		return w.Observed(ad, id)
	}
	u, err := gpu.ParseUUID(id)
	return u, err == nil
}

// budgetOn is a slot's budget on a GPU.
func (w Ads) budgetOn(u gpu.UUID, vram int64) gpu.MiB {
	if w.Budget != nil {
		return w.Budget(u, vram)
	}
	return gpu.MiB(vram)
}

// Mismatch is a slot of which the hook and HTCondor say different things; text says which.
type Mismatch struct {
	Slot string
	GPU  gpu.UUID
	Text string
}

// Settled is what came of comparing the job table with HTCondor's ads.
type Settled struct {
	Mismatches []Mismatch
	// Taken are entries, as they were, of jobs whose slots do not have that GPU.
	Taken []Job
	// Open counts slots that HTCondor did not tell of.
	Open int
	// Ignored are starters of slots that HTCondor does not have.
	Ignored []starter.Starter
}

// Settle compares every entry with the ad of its slot. Where they differ HTCondor's word
// counts. Slots found at the start, of which only the starter is known, get their GPU here.
func (t *Table) Settle(w Ads) Settled {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := &t.view
	var out Settled
	v.jobs = slices.DeleteFunc(v.jobs, func(j Job) bool {
		ad, ok := w.slot(j.Starter.Slot)
		if !ok || !j.isOf(ad) || w.Observed != nil || j.heldBy(ad) {
			return false
		}
		out.Mismatches = append(out.Mismatches, Mismatch{j.Starter.Slot, j.GPU,
			fmt.Sprintf("the job told of %s, the startd of %v", j.GPU, ad.AssignedGPUs)})
		v.elsewhere[j.Starter.ID] = true
		out.Taken = append(out.Taken, j)
		return true
	})
	for i := range v.jobs {
		j := &v.jobs[i]
		ad, ok := w.slot(j.Starter.Slot)
		if !ok || !j.isOf(ad) {
			// Its ad is not there yet, cannot be read, or is of the job before or after.
			if !j.Confirmed {
				out.Open++
			}
			continue
		}
		j.Work = j.Work.or(workIn(ad))
		was := *j
		if text := j.correct(ad, w); text != "" {
			if was.GPU != j.GPU {
				out.Taken = append(out.Taken, was)
			}
			out.Mismatches = append(out.Mismatches, Mismatch{j.Starter.Slot, j.GPU, text})
		}
	}
	out.Ignored = v.adopt(w)
	out.Open += len(v.unplaced)
	return out
}

// isOf: an ad is of this very job. A job can tell any id, but not another starter.
func (j Job) isOf(ad condor.Slot) bool {
	return ad.JobID != "" &&
		(j.ID == "" || j.ID == ad.JobID || ad.StarterPID != 0 && ad.StarterPID == int64(j.Starter.PID))
}

// heldBy: the job's slot has a GPU that the entry can stand for. Any process of a
// job may ask for any GPU, also where its slot has none.
func (j Job) heldBy(ad condor.Slot) bool {
	if j.EnforcedBy == EnforcedByWhole || j.EnforcedBy == EnforcedByMIG {
		return slices.Contains(ad.AssignedGPUs, string(j.GPU))
	}
	return len(ad.AssignedGPUs) > 0
}

// correct takes over what HTCondor says of a slot and returns the difference.
func (j *Job) correct(ad condor.Slot, w Ads) (differs string) {
	if w.Observed != nil {
		j.Confirmed = true
		return ""
	}
	if j.EnforcedBy == EnforcedByWhole || j.EnforcedBy == EnforcedByMIG {
		j.ID, j.Confirmed = ad.JobID, true
		return ""
	}
	u, ok := onlyGPU(ad)
	if !ok || ad.VRAM == nil {
		return "" // a slot between two jobs
	}
	if budget := w.budgetOn(u, *ad.VRAM); u != j.GPU || budget != j.Budget {
		differs = fmt.Sprintf("the hook told of %s on %s, the startd of %s on %s", j.Budget, j.GPU, budget, u)
		j.GPU, j.Budget = u, budget
		j.EnforcedBy = w.EnforcedBy(u, budget)
	}
	if owner := ad.Owner(); owner != "" {
		j.Owner = owner
	}
	switch {
	case ad.Unsaid != "": // what the hook said stands
	case j.Unsaid != "" || ad.Group != "" || ad.VO != "": // published only where tenants are told apart by them
		j.Group, j.VO, j.Unsaid = ad.Group, ad.VO, ""
	}
	j.ID, j.Confirmed = ad.JobID, true
	return differs
}

// onlyGPU is the one GPU of a slot, however often its id is repeated.
func onlyGPU(ad condor.Slot) (gpu.UUID, bool) {
	ids := slices.Clone(ad.AssignedGPUs)
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 {
		return "", false
	}
	u, err := gpu.ParseUUID(ids[0])
	return u, err == nil
}

// MostAsked is how often HTCondor may tell of its slots without knowing a starter's
// before the table takes it for another startd's.
const MostAsked = 3

// adopt enters the jobs that ran before the agent started, by HTCondor's word.
func (v *View) adopt(w Ads) (ignored []starter.Starter) {
	v.unplaced = slices.DeleteFunc(v.unplaced, func(s unplaced) bool {
		ad, ok := w.slot(s.Slot)
		if !ok || otherStarter(ad, s.Starter) || w.Observed != nil && !v.tells(ad, s.Starter) {
			return false
		}
		v.adoptSlot(s, ad, w)
		return true
	})
	left := v.unplaced[:0]
	for _, s := range v.unplaced {
		if w.Slots[condor.SlotName(s.Slot)].Unreadable != "" {
			left = append(left, s) // the slot is there, on a GPU that is not known
			continue
		}
		if s.asked++; s.asked >= MostAsked {
			ignored = append(ignored, s.Starter)
			continue
		}
		left = append(left, s)
	}
	v.unplaced = left
	return ignored
}

// otherStarter: a slot of that name has another starter, as where another startd of the
// node has slots of the same names. HTCondor tells the PID while a job runs.
func otherStarter(ad condor.Slot, s starter.Starter) bool {
	return ad.StarterPID != 0 && ad.StarterPID != int64(s.PID)
}

// tells: an ad is of a starter's job. That lives still, so no other job can have
// had the slot when the ad was made.
func (v *View) tells(ad condor.Slot, s starter.Starter) bool {
	return ad.JobID != "" && !otherStarter(ad, s) && v.processes.Runs(s.ID)
}

func (v *View) adoptSlot(s unplaced, ad condor.Slot, w Ads) {
	j := Job{
		Starter: s.Starter, Owner: ad.Owner(), ID: ad.JobID, Group: ad.Group, VO: ad.VO,
		Unsaid: ad.Unsaid, Work: workIn(ad), Since: time.Now(), Confirmed: true, Adopted: !s.fresh,
	}
	if w.Observed != nil {
		j.Since = w.Began(s.Started, j.Since)
		j.Group = cmp.Or(j.Group, ad.AccountingGroup)
	}
	var account starter.Account
	if w.Account != nil {
		account = w.Account(s.Starter, ad)
	}
	entered := false
	for _, id := range ad.AssignedGPUs {
		u, ok := w.gpu(ad, id)
		if !ok {
			continue // not one of ours
		}
		if ad.VRAM != nil {
			j.Budget = w.budgetOn(u, *ad.VRAM)
		}
		j.GPU, j.EnforcedBy, entered = u, w.EnforcedBy(u, j.Budget), true
		// A job may have changed its account since it was admitted; then whose job it is is not known.
		if j.Account = account; w.Admitted != nil && !w.Admitted(u, account.UID) {
			j.Account = starter.Account{}
		}
		v.enter(j, true)
		if w.Observed != nil {
			v.noteBeside(u)
		}
	}
	if !entered && w.Observed != nil {
		v.elsewhere[s.ID] = true
	}
}

// noteBeside marks jobs that have a GPU at the same time.
func (v *View) noteBeside(u gpu.UUID) {
	if len(v.On(u)) < 2 {
		return
	}
	for i := range v.jobs {
		v.jobs[i].Beside = v.jobs[i].Beside || v.jobs[i].GPU == u
	}
}

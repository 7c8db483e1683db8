package agent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// shortName of "slot1_2@host" is "slot1_2", which is what a starter is told; a
// GPU's own startd stays in it, "slot1_2@gpu5a1e0c11".
func shortName(slot string) string { return condor.SlotName(slot) }

// startdWord is what the startd says, and what the agent can add.
type startdWord struct {
	slots map[string]condor.Slot // by short name
	wall  func(u gpu.UUID, budget gpu.MiB) string
	// budget is the budget on a GPU of a slot with so much VRAM, in MiB: a share where
	// the job asked for none. Nil: it is the slot's VRAM.
	budget func(u gpu.UUID, vram int64) gpu.MiB
	// account finds the account of a slot's job.
	account func(s starter.Starter, ad condor.Slot) starter.Account
	// observed finds the GPU that an id stands for where the site's own rules give
	// GPUs out; nil elsewhere, where ids are UUIDs.
	observed func(ad condor.Slot, id string) (gpu.UUID, bool)
}

// ad is the startd's of a slot, if it can be read.
func (w startdWord) ad(slot string) (condor.Slot, bool) {
	ad, ok := w.slots[shortName(slot)]
	return ad, ok && ad.Unreadable == ""
}

// gpu is the GPU that an id of a slot stands for.
func (w startdWord) gpu(ad condor.Slot, id string) (gpu.UUID, bool) {
	if w.observed != nil {
		return w.observed(ad, id)
	}
	u, err := gpu.ParseUUID(id)
	return u, err == nil
}

// budgetOn is a slot's budget on a GPU.
func (w startdWord) budgetOn(u gpu.UUID, vram int64) gpu.MiB {
	if w.budget != nil {
		return w.budget(u, vram)
	}
	return gpu.MiB(vram)
}

// mismatch is where the hook and the startd disagree.
type mismatch struct {
	slot string
	gpu  gpu.UUID
	text string
}

// settled is what came of comparing the job table with the startd's ads.
type settled struct {
	mismatches []mismatch
	// taken are entries, as they were, of jobs whose slots do not have that GPU.
	taken []Running
	// open counts slots that the startd did not tell of.
	open int
	// ignored are starters of slots that the startd does not have.
	ignored []starter.Starter
}

// settle compares every entry with the startd's ad of its slot. Where they
// differ the startd's word counts. Slots found at the start, of which only the
// starter is known, get their GPU here.
func (b *jobTable) settle(w startdWord) settled {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out settled
	b.slots = slices.DeleteFunc(b.slots, func(r Running) bool {
		ad, ok := w.ad(r.Starter.Slot)
		if !ok || !r.isOf(ad) || w.observed != nil || r.heldBy(ad) {
			return false
		}
		out.mismatches = append(out.mismatches, mismatch{r.Starter.Slot, r.GPU, fmt.Sprintf("the job told of %s, the startd of %v", r.GPU, ad.AssignedGPUs)})
		b.elsewhere[r.Starter.ID] = true
		out.taken = append(out.taken, r)
		return true
	})
	for i := range b.slots {
		r := &b.slots[i]
		ad, ok := w.ad(r.Starter.Slot)
		if !ok || !r.isOf(ad) {
			// Its ad is not there yet, cannot be read, or is of the job before or after.
			if !r.Confirmed {
				out.open++
			}
			continue
		}
		r.Work = r.Work.or(workIn(ad))
		was := *r
		if text := r.correct(ad, w); text != "" {
			if was.GPU != r.GPU {
				out.taken = append(out.taken, was)
			}
			out.mismatches = append(out.mismatches, mismatch{r.Starter.Slot, r.GPU, text})
		}
	}
	out.ignored = b.adopt(w)
	out.open += len(b.unplaced)
	return out
}

// isOf: an ad is of this very job. A job can tell any id, but not another starter.
func (r Running) isOf(ad condor.Slot) bool {
	return ad.JobID != "" && (r.Job == "" || r.Job == ad.JobID || ad.StarterPID != 0 && ad.StarterPID == int64(r.Starter.PID))
}

// heldBy: the job's slot has a GPU that the entry can stand for. Any process of a
// job may ask for any GPU, also where its slot has none.
func (r Running) heldBy(ad condor.Slot) bool {
	if r.Wall == wallWhole || r.Wall == wallMIG {
		return slices.Contains(ad.AssignedGPUs, string(r.GPU))
	}
	return len(ad.AssignedGPUs) > 0
}

// correct takes over what the startd says of a slot and tells the difference.
func (r *Running) correct(ad condor.Slot, w startdWord) (differs string) {
	if w.observed != nil {
		r.Confirmed = true
		return ""
	}
	if r.Wall == wallWhole || r.Wall == wallMIG {
		r.Job, r.Confirmed = ad.JobID, true
		return ""
	}
	u, ok := onlyGPU(ad)
	if !ok || ad.VRAM == nil {
		return "" // a slot between two jobs
	}
	if budget := w.budgetOn(u, *ad.VRAM); u != r.GPU || budget != r.Budget {
		differs = fmt.Sprintf("the hook told of %s on %s, the startd of %s on %s", r.Budget, r.GPU, budget, u)
		r.GPU, r.Budget = u, budget
		r.Wall = w.wall(u, budget)
	}
	if owner := ad.Owner(); owner != "" {
		r.Owner = owner
	}
	if ad.Group != "" || ad.VO != "" { // published only where tenants are told apart by them
		r.Group, r.VO = ad.Group, ad.VO
	}
	r.Job, r.Confirmed = ad.JobID, true
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

// maxAsked is how often the startd may tell of its slots without knowing a
// starter's before the agent takes it for another startd's.
const maxAsked = 3

// adopt books the slots that ran before the agent started, by the startd's
// word.
func (v *jobView) adopt(w startdWord) (ignored []starter.Starter) {
	v.unplaced = slices.DeleteFunc(v.unplaced, func(s unplaced) bool {
		ad, ok := w.ad(s.Slot)
		if !ok || otherStarter(ad, s.Starter) || w.observed != nil && !v.tells(ad, s.Starter) {
			return false
		}
		v.adoptSlot(s, ad, w)
		return true
	})
	left := v.unplaced[:0]
	for _, s := range v.unplaced {
		if w.slots[shortName(s.Slot)].Unreadable != "" {
			left = append(left, s) // the slot is there, on a GPU that is not known
			continue
		}
		if s.asked++; s.asked >= maxAsked {
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
func (v *jobView) tells(ad condor.Slot, s starter.Starter) bool {
	return ad.JobID != "" && !otherStarter(ad, s) && v.proc.Runs(s.ID)
}

func (v *jobView) adoptSlot(s unplaced, ad condor.Slot, w startdWord) {
	r := Running{Starter: s.Starter, Owner: ad.Owner(), Job: ad.JobID, Group: ad.Group, VO: ad.VO, Work: workIn(ad), Since: time.Now(), Confirmed: true, Adopted: !s.fresh}
	if w.observed != nil {
		r.Since = beginning(s.Started, r.Since)
		r.Group = cmp.Or(r.Group, ad.AccountingGroup)
	}
	if w.account != nil {
		r.Account = w.account(s.Starter, ad)
	}
	entered := false
	for _, id := range ad.AssignedGPUs {
		u, ok := w.gpu(ad, id)
		if !ok {
			continue // not one of ours
		}
		if ad.VRAM != nil {
			r.Budget = w.budgetOn(u, *ad.VRAM)
		}
		r.GPU, r.Wall, entered = u, w.wall(u, r.Budget), true
		v.enter(r, true)
		if w.observed != nil {
			v.noteBeside(u)
		}
	}
	if !entered && w.observed != nil {
		v.elsewhere[s.ID] = true
	}
}

// noteBeside marks jobs that have a GPU at the same time.
func (v *jobView) noteBeside(u gpu.UUID) {
	if len(v.on(u)) < 2 {
		return
	}
	for i := range v.slots {
		v.slots[i].Beside = v.slots[i].Beside || v.slots[i].GPU == u
	}
}

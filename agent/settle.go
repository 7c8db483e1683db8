package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	// account finds the account of a slot's job.
	account func(s Starter, ad condor.Slot) Account
}

// mismatch is where the hook and the startd disagree.
type mismatch struct {
	slot string
	gpu  gpu.UUID
	text string
}

// settled is what came of comparing the books with the startd's ads.
type settled struct {
	mismatches []mismatch
	// open counts slots that the startd did not tell of.
	open int
	// ignored are starters of slots that the startd does not have.
	ignored []Starter
}

// settle compares every entry with the startd's ad of its slot. Where they
// differ the startd's word counts. Slots found at the start, of which only the
// starter is known, get their GPU here.
func (b *books) settle(w startdWord) settled {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out settled
	for i := range b.slots {
		r := &b.slots[i]
		ad, ok := w.slots[shortName(r.Starter.Slot)]
		if !ok || ad.JobID == "" || r.Job != "" && r.Job != ad.JobID {
			// Its ad is not there yet, or is of the job before or after.
			if !r.Confirmed {
				out.open++
			}
			continue
		}
		r.Work = r.Work.or(workIn(ad))
		if text := r.correct(ad, w); text != "" {
			out.mismatches = append(out.mismatches, mismatch{r.Starter.Slot, r.GPU, text})
		}
	}
	out.ignored = b.adopt(w)
	out.open += len(b.unbooked)
	return out
}

// correct takes over what the startd says of a slot and tells the difference.
func (r *Running) correct(ad condor.Slot, w startdWord) (differs string) {
	if r.Wall == WallWhole || r.Wall == WallMIG {
		r.Confirmed = slices.Contains(ad.AssignedGPUs, string(r.GPU))
		if !r.Confirmed && len(ad.AssignedGPUs) > 0 {
			return fmt.Sprintf("the hook told of %s, the startd of %v", r.GPU, ad.AssignedGPUs)
		}
		return ""
	}
	u, ok := onlyGPU(ad)
	if !ok || ad.VRAM == nil {
		return "" // a slot between two jobs
	}
	if budget := gpu.MiB(*ad.VRAM); u != r.GPU || budget != r.Budget {
		differs = fmt.Sprintf("the hook told of %s on %s, the startd of %s on %s", r.Budget, r.GPU, budget, u)
		r.GPU, r.Budget = u, budget
		r.Wall = w.wall(u, budget)
	}
	if owner := ownerOf(ad); owner != "" {
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

// ownerOf is the job's Owner: RemoteOwner without its domain.
func ownerOf(ad condor.Slot) string {
	owner, _, _ := strings.Cut(ad.RemoteOwner, "@")
	return owner
}

// maxAsked is how often the startd may tell of its slots without knowing a
// starter's before the agent takes it for another startd's.
const maxAsked = 3

// adopt books the slots that ran before the agent started, by the startd's
// word. The caller holds mu.
func (b *books) adopt(w startdWord) (ignored []Starter) {
	b.unbooked = slices.DeleteFunc(b.unbooked, func(s unbooked) bool {
		ad, ok := w.slots[shortName(s.Slot)]
		if ok {
			b.adoptSlot(s.Starter, ad, w)
			return true
		}
		return false
	})
	left := b.unbooked[:0]
	for _, s := range b.unbooked {
		if s.asked++; s.asked >= maxAsked {
			ignored = append(ignored, s.Starter)
			continue
		}
		left = append(left, s)
	}
	b.unbooked = left
	return ignored
}

func (b *books) adoptSlot(s Starter, ad condor.Slot, w startdWord) {
	r := Running{Starter: s, Owner: ownerOf(ad), Job: ad.JobID, Group: ad.Group, VO: ad.VO, Work: workIn(ad), Since: time.Now(), Confirmed: true, Adopted: true}
	if w.account != nil {
		r.Account = w.account(s, ad)
	}
	if ad.VRAM != nil {
		r.Budget = gpu.MiB(*ad.VRAM)
	}
	for _, id := range ad.AssignedGPUs {
		u, err := gpu.ParseUUID(id)
		if err != nil {
			continue // not one of ours
		}
		r.GPU, r.Wall = u, w.wall(u, r.Budget)
		b.enter(r)
	}
}

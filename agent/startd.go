package agent

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Startd is HTCondor on this machine.
type Startd interface {
	// Version is the installed one.
	Version(ctx context.Context) (condor.Version, error)
	// Slots are the startd's own ads of its slots.
	Slots(ctx context.Context) ([]condor.Slot, error)
}

// HTCondor is the installed one, asked through its command-line programs.
type HTCondor struct{}

// Version asks condor_version.
func (HTCondor) Version(ctx context.Context) (condor.Version, error) {
	return condor.InstalledVersion(ctx)
}

// Slots asks the startd with condor_status -direct.
func (HTCondor) Slots(ctx context.Context) ([]condor.Slot, error) { return condor.Slots(ctx) }

// seen is what the startd said last.
type seen struct {
	at time.Time
	// err is why it could not be asked.
	err error
	// older: the startd runs with another layout than the plan's.
	older bool
}

// How often the startd is asked: soon after an admission, for many of them at
// once, and now and then for its layout.
const (
	askSoon    = time.Second
	askRetry   = 15 * time.Second
	askAnyway  = time.Minute
	askTimeout = 5 * time.Second
)

// confirm keeps the books in step with the startd's word, off the hot path.
func (a *Agent) confirm(ctx context.Context) {
	next := time.NewTimer(askAnyway)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.booked:
			pause(ctx, askSoon) // one question for a burst of admissions
			select {
			case <-a.booked:
			default:
			}
		case <-next.C:
		}
		if a.ask(ctx) {
			next.Reset(askAnyway)
		} else {
			next.Reset(askRetry)
		}
	}
}

// ask puts one question to the startd and corrects the books. It says whether
// nothing is left open.
func (a *Agent) ask(ctx context.Context) (settled bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	slots, err := a.startd.Slots(ctx)
	now := time.Now()
	if err != nil {
		a.startdSays.Store(&seen{at: now, err: err})
		return false
	}
	v := a.view.Load()
	truth := startdWord{
		slots: map[string]condor.Slot{},
		wall:  func(u gpu.UUID, budget gpu.MiB) string { return a.wall(v, u, budget) },
	}
	for _, s := range slots {
		truth.slots[shortName(s.Name)] = s
	}
	if a.books.unknown() != "" {
		truth.account = a.books.proc.accounts(slots)
	}
	found := a.books.settle(truth)
	for _, m := range found.mismatches {
		a.log.Error("the startd's word differs from the hook's; the startd's counts", "slot", m.slot, "gpu", m.gpu, "differs", m.text)
		a.metrics.Mismatch()
	}
	for _, s := range found.ignored {
		a.log.Warn("a condor_starter belongs to none of the startd's slots; its GPU is not known to gpuslot", "slot", s.Slot, "pid", s.PID)
	}
	a.startdSays.Store(&seen{at: now, older: a.olderLayout(v, slots)})
	return found.open == 0
}

// wall of a budget on a GPU of the plan; that of a GPU that is not shared is
// the GPU itself.
func (a *Agent) wall(v *view, u gpu.UUID, budget gpu.MiB) string {
	g, ok := find(&v.plan, u)
	switch {
	case !ok:
		return WallNone
	case !g.Shared():
		return WallWhole
	}
	return wallOf(v.plan.Driver, g.LargestRequest, budget)
}

// olderLayout compares the fingerprint that the startd runs with. A startd
// without one runs without gpuslot's configuration, which is to be told too
// where the agent manages it.
func (a *Agent) olderLayout(v *view, slots []condor.Slot) bool {
	if !v.planned || !v.config.HTCondor.Manage || len(slots) == 0 {
		return false
	}
	want := condor.Fingerprint(a.node(v.config, v.plan))
	return slices.ContainsFunc(slots, func(s condor.Slot) bool { return s.Plan != want })
}

// shortName of "slot1_2@host" is "slot1_2", which is what a starter is told.
func shortName(slot string) string {
	short, _, _ := strings.Cut(slot, "@")
	return short
}

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
	if r.Wall == WallWhole {
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
	r := Running{Starter: s, Owner: ownerOf(ad), Job: ad.JobID, Since: time.Now(), Confirmed: true}
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

// accounts looks at all processes once and finds the account that a slot's job
// runs as: that of any process below the starter or in the slot's cgroup, else
// the owner's by name.
func (fs procFS) accounts(slots []condor.Slot) func(Starter, condor.Slot) Account {
	byParent, bySlot := map[int]uint32{}, map[string]uint32{}
	for _, pid := range fs.pids() {
		p, err := fs.process(pid)
		if err != nil || p.gone() {
			continue
		}
		uid, err := fs.realUID(pid)
		if err != nil || uid == 0 {
			continue
		}
		byParent[p.Parent] = uid
		if in, err := fs.cgroupSlot(pid); err == nil && in != "" {
			bySlot[shortName(in)] = uid
		}
	}
	byName := map[string]Account{}
	for _, s := range slots {
		if owner := ownerOf(s); owner != "" {
			byName[owner] = accountNamed(owner)
		}
	}
	return func(s Starter, ad condor.Slot) Account {
		if uid, ok := bySlot[shortName(s.Slot)]; ok {
			return Account{UID: uid, Known: true}
		}
		if uid, ok := byParent[s.PID]; ok {
			return Account{UID: uid, Known: true}
		}
		return byName[ownerOf(ad)]
	}
}

// accountNamed looks an account up; unknown is a value.
func accountNamed(name string) Account {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	return Account{UID: uint32(uid), Known: err == nil}
}

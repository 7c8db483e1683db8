package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// demand sums what waits by the smallest profile of the group whose slot has its VRAM,
// CPUs and memory, as the agent does.
func (g *following) demand(w *world) (ds []mig.Demand) {
	for _, i := range w.queue.active {
		c := w.queue.classes[i]
		if c.count() == 0 {
			continue
		}
		k := slices.IndexFunc(g.profiles, func(p plan.GPU) bool { return p.Holds(c.asks()) })
		here := slices.ContainsFunc(c.shapes, func(i int32) bool {
			return w.shapes[i].group == g.group &&
				w.shapes[i].kind == device
		})
		if k < 0 || !here {
			continue
		}
		name := g.profiles[k].Profile
		at := slices.IndexFunc(ds, func(d mig.Demand) bool { return d.Profile == name })
		if at < 0 {
			at, ds = len(ds), append(ds, mig.Demand{Profile: name})
		}
		ds[at].Count += c.count()
		ds[at].Age = max(ds[at].Age, seconds(w.now-c.waiting[c.head].arrival))
	}
	slices.SortFunc(ds, func(a, b mig.Demand) int { return cmp.Compare(a.Profile, b.Profile) })
	return ds
}

// guard sets above which profile jobs come onto each shape (the agent's rule of
// GPUSLOT_LARGE). Where that changes, classes that found nothing search again.
func (f *follower) guard(w *world, g *following, demand []mig.Demand) {
	changed := false
	waited := func(profile string) bool {
		return slices.ContainsFunc(demand, func(d mig.Demand) bool { return d.Profile == profile })
	}
	for i, s := range w.shapes {
		if s.group != g.group || s.kind != device || s.gpu.Place == "" {
			continue
		}
		below, _ := plan.Below(g.profiles, s.gpu.Profile, waited)
		changed = changed || below.Profile != f.below[i].Profile
		f.below[i] = below
	}
	if !changed {
		return
	}
	for _, i := range w.queue.active {
		w.queue.classes[i].blocked = false
	}
	if w.queue.n > 0 {
		w.wake()
	}
}

// sight is a GPU of a node as the policy sees it.
func (w *world) sight(node int32, d *divided) gpu.MIGGPU {
	out := gpu.MIGGPU{UUID: d.UUID, Index: d.Index, Chip: d.narrow}
	for k, at := range d.slots {
		s := &w.slots[w.nodes[node].first+int32(at)]
		if s.off {
			continue
		}
		profile, _ := d.chip.Profile(d.places[k].Profile)
		in := gpu.Instance{Place: d.places[k], Size: profile.Size, ID: k, Owner: gpu.Ours}
		if s.jobs > 0 {
			in.Holders = []gpu.Holder{{Slot: "busy"}}
		}
		out.Instances = append(out.Instances, in)
	}
	return out
}

// What one instance takes, as users of NVIDIA's driver report it, and what HTCondor takes to
// follow a change.
const (
	destroyTime = time.Second
	createTime  = time.Second / 2
	followTime  = 5 * time.Second
)

// change takes instances away at once and makes others after the time that it takes.
func (f *follower) change(w *world, g *following, n *followed, to mig.GPUPlan) {
	p := &w.plans[g.group]
	k := slices.IndexFunc(p.divided, func(d divided) bool { return d.UUID == to.GPU })
	if k < 0 || len(to.Created)+len(to.Destroyed) == 0 {
		return
	}
	d := &p.divided[k]
	took := followTime + time.Duration(len(to.Destroyed))*destroyTime + time.Duration(len(to.Created))*createTime
	for i, at := range d.slots {
		slot := w.nodes[n.node].first + int32(at)
		s := &w.slots[slot]
		switch wanted := to.Layout.Contains(d.places[i]); {
		case wanted && s.off:
			n.changing[k] = true
			f.coming = append(f.coming, coming{w.now + took.Seconds(), slot, n, k})
		case !wanted && !s.off:
			s.off = true
			w.offer(slot)
		}
	}
	slices.SortStableFunc(f.coming, func(a, b coming) int { return cmp.Compare(a.at, b.at) })
	w.sums.changes++
}

// keep lets no new job on what is reserved.
func (w *world) keep(node int32, p *nodePlan, reserved []mig.Reservation) {
	for i := range p.divided {
		d := &p.divided[i]
		for k, at := range d.slots {
			slot := w.nodes[node].first + int32(at)
			s := &w.slots[slot]
			kept := slices.ContainsFunc(reserved, func(r mig.Reservation) bool {
				return r.GPU == d.UUID &&
					r.Keep.Contains(d.places[k])
			})
			if kept == s.kept {
				continue
			}
			s.kept = kept
			w.offer(slot)
			if !kept && !s.off {
				w.release(slot)
			}
		}
	}
}

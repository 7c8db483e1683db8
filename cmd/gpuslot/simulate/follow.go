package simulate

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// follower lets MIG layouts follow the work that waits, as each node's agent does:
// it looks now and then, asks mig.Decide, and carries the plan out.
type follower struct {
	// at is the next time at which something is to be done here, look the next look;
	// infinite if nothing waits.
	at, look float64
	every    float64
	groups   []following
	// coming are instances on their way, by time.
	coming    []coming
	catalogue mig.Catalogue
	// stir and since tell since when nothing has happened; beyond patience nothing will.
	stir            int
	since, patience float64
	// below are profiles whose jobs leave a shape's slots to larger ones; zero for none.
	below []plan.GPU
}

// following is a group whose nodes follow.
type following struct {
	group int
	rules mig.Rules
	// profiles are one place of each profile, the smallest first.
	profiles []plan.GPU
	nodes    []followed
}

// followed is one node of it.
type followed struct {
	node int32
	past mig.Past
	// changing are the GPUs that get instances; by their number in nodePlan.divided.
	changing map[int]bool
}

// coming is an instance that is being made.
type coming struct {
	at      float64
	slot    int32
	node    *followed
	divided int
}

func newFollower(w *world) *follower {
	f := &follower{at: math.Inf(1), look: math.Inf(1), below: make([]plan.GPU, len(w.shapes))}
	for i := range w.plans {
		p := &w.plans[i]
		if !slices.ContainsFunc(p.divided, divided.follows) {
			continue
		}
		g := following{group: i, rules: p.config.Repartition.Rules(mig.Auto), profiles: p.profiles()}
		f.patience = max(f.patience, (g.rules.Dwell + g.rules.ReserveAfter + g.rules.ReserveFor + 2*time.Hour).Seconds())
		f.every = p.config.Repartition.Interval().Seconds()
		for k := range w.nodes {
			if int(w.nodes[k].group) == i {
				g.nodes = append(g.nodes, followed{node: int32(k), changing: map[int]bool{}})
			}
		}
		f.groups = append(f.groups, g)
	}
	return f
}

func (d divided) follows() bool { return d.Repartition == mig.Auto && len(d.places) > 0 }

// profiles are those of the GPUs that follow.
func (n *nodePlan) profiles() []plan.GPU {
	return n.plan.Profiles(func(m plan.MIGGPU) bool {
		return slices.ContainsFunc(n.divided, func(d divided) bool { return d.UUID == m.UUID && d.follows() })
	})
}

// wake plans a look if none is.
func (f *follower) wake(w *world) {
	if len(f.groups) == 0 || !math.IsInf(f.look, 1) || f.hopeless(w) {
		return
	}
	f.look = w.sums.begin + (math.Floor((w.now-w.sums.begin)/f.every)+1)*f.every
	if f.look <= w.now { // by rounding
		f.look += f.every
	}
	f.at = min(f.at, f.look)
}

// hopeless reports whether nothing has happened for so long that nothing will.
func (f *follower) hopeless(w *world) bool {
	if stir := w.sums.jobs + w.sums.started + w.sums.ended + w.sums.changes; stir != f.stir {
		f.stir, f.since = stir, w.now
	}
	return w.queue.n > 0 && w.now-f.since > f.patience
}

// admits keeps small jobs off large MIG devices while larger jobs wait for them.
func (f *follower) admits(shape int32, c *class) bool {
	below := f.below[shape]
	return below.Profile == "" || !below.Holds(c.asks())
}

// act makes the instances that are due and looks at what waits.
func (f *follower) act(w *world) error {
	for len(f.coming) > 0 && f.coming[0].at <= w.now {
		c := f.coming[0]
		f.coming = f.coming[1:]
		delete(c.node.changing, c.divided)
		w.slots[c.slot].off = false
		w.offer(c.slot)
		w.release(c.slot)
	}
	var err error
	if f.look <= w.now {
		err = f.lookAround(w)
	}
	f.at = f.look
	if len(f.coming) > 0 {
		f.at = min(f.at, f.coming[0].at)
	}
	return err
}

// lookAround decides for every node that has a part in what waits.
func (f *follower) lookAround(w *world) error {
	f.look = math.Inf(1)
	again := false
	for i := range f.groups {
		g := &f.groups[i]
		demand := g.demand(w)
		f.guard(w, g, demand)
		busy, err := f.decide(w, g, demand)
		if err != nil {
			return err
		}
		again = again || busy || w.queue.n > 0
	}
	if again {
		f.wake(w)
	}
	return nil
}

// epoch is the beginning of a run for the policy, which reads the clock.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// decide asks the policy for each node. busy: some node has more to decide.
func (f *follower) decide(w *world, g *following, demand []mig.Demand) (busy bool, err error) {
	total := 0
	for _, o := range f.groups {
		total += len(o.nodes)
	}
	name := w.pool.Groups[g.group].Name
	for i := range g.nodes {
		n := &g.nodes[i]
		var here []mig.Demand
		for _, d := range demand {
			if d = mig.Share(name+"-"+strconv.Itoa(i), total, d); d.Count > 0 {
				here = append(here, d)
			}
		}
		if len(here) == 0 && len(n.past.Unmet) == 0 && len(n.past.Reservations) == 0 {
			continue
		}
		if err := f.decideNode(w, g, n, here); err != nil {
			return busy, err
		}
		busy = busy || len(n.past.Reservations) > 0
	}
	return busy, nil
}

func (f *follower) decideNode(w *world, g *following, n *followed, here []mig.Demand) error {
	p := &w.plans[g.group]
	s := mig.Sight{At: epoch.Add(seconds(w.now)), Demand: here, Places: map[gpu.UUID]gpu.Layout{}}
	for k := range p.divided {
		if d := &p.divided[k]; d.follows() && !n.changing[k] {
			s.GPUs = append(s.GPUs, w.sight(n.node, d))
			if d.bounded {
				s.Places[d.UUID] = d.places
			}
		}
	}
	if len(s.GPUs) == 0 {
		return nil
	}
	decision, past, err := mig.Decide(&f.catalogue, g.rules, n.past, s)
	if err != nil {
		return err
	}
	n.past = past
	if decision.Act == mig.Replan {
		for _, one := range decision.Plan.GPUs {
			f.change(w, g, n, one)
		}
	}
	w.keep(n.node, p, decision.Reserved)
	return nil
}

package layouts

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Incremental is gpuslot's own way: mig.Decide looks at the node now and then and
// changes only what is idle. GPUs begin without an instance.
type Incremental struct {
	Title string
	Rules mig.Rules
	// Every is the time between two looks; 0: a look at every event.
	Every time.Duration
}

// Name is the title.
func (i Incremental) Name() string { return i.Title }

func (i Incremental) begin(n Node, _ *mig.Catalogue) (driver, []gpu.Layout, error) {
	if i.Every < 0 {
		return nil, nil, errors.New("the time between two looks cannot be negative")
	}
	return &incremental{Incremental: i}, make([]gpu.Layout, n.GPUs), i.Rules.Check()
}

type incremental struct {
	Incremental
	past mig.Past
	// next is the time of the next look.
	next time.Duration
	// stir and since tell since when nothing has happened.
	stir  int
	since time.Duration
}

// takes only what was made for jobs of this size: larger instances are for
// those that need them, and can be split.
func (d *incremental) takes(_ *world, _ int, in *instance, c *class) bool {
	return in.profile.ID == c.profile.ID
}

// epoch is the beginning of a run for the policy, which reads the clock.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func (d *incremental) decide(w *world) error {
	if w.stir != d.stir {
		d.stir, d.since = w.stir, w.now
	}
	if w.now < d.next {
		return nil
	}
	d.next = w.now + d.Every
	s := mig.Sight{At: epoch.Add(w.now), Demand: w.demand()}
	for g := range w.gpus {
		if w.gpus[g].changing <= w.now {
			s.GPUs = append(s.GPUs, w.sight(g))
		}
	}
	if len(s.GPUs) == 0 {
		return nil
	}
	decision, past, err := mig.Decide(w.catalogue, d.Rules, d.past, s)
	if err != nil {
		return err
	}
	d.past = past
	if decision.Act == mig.Replan {
		for _, p := range decision.Plan.GPUs {
			if g := w.number(p.GPU); len(p.Created)+len(p.Destroyed) > 0 {
				w.change(g, p.Layout, 0)
			}
		}
	}
	w.keep(decision.Reserved)
	return nil
}

// patience is how long looks go on when nothing happens any more: longer than
// an hour, within which changes are counted.
const patience = 2 * time.Hour

// wake at the next look while anything waits.
func (d *incremental) wake(w *world) (time.Duration, bool) {
	idle := w.waiting() == 0 && len(d.past.Reservations) == 0
	if idle || w.now-d.since > d.Rules.Dwell+d.Rules.ReserveAfter+patience {
		return 0, false
	}
	every := d.Every
	if every == 0 {
		every = time.Minute // what only time changes
	}
	return max(d.next, w.now-w.now%every+every), true
}

// sight is a GPU as the policy sees it.
func (w *world) sight(g int) gpu.MIGGPU {
	s := gpu.MIGGPU{UUID: w.gpus[g].uuid, Index: g, Chip: w.node.Chip}
	for _, in := range w.gpus[g].instances {
		i := gpu.Instance{Place: in.place, Size: in.profile.Size, ID: in.id, Owner: gpu.Ours}
		if in.job >= 0 {
			i.Holders = []gpu.Holder{{Slot: fmt.Sprintf("job %d", in.job+1)}}
		}
		s.Instances = append(s.Instances, i)
	}
	return s
}

func (w *world) number(u gpu.UUID) int {
	return slices.IndexFunc(w.gpus, func(g gpuState) bool { return g.uuid == u })
}

// keep lets no new job on what is reserved.
func (w *world) keep(reserved []mig.Reservation) {
	for g := range w.gpus {
		for _, in := range w.gpus[g].instances {
			in.kept = slices.ContainsFunc(reserved, func(r mig.Reservation) bool {
				return r.GPU == w.gpus[g].uuid && r.Keep.Contains(in.place)
			})
		}
	}
}

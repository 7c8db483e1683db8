// Package layouts runs traces of jobs against MIG layouts and the policies that
// change them, in simulated time, and measures what the jobs get. It owns the
// model of the pool; the policy is package mig's own, as an agent runs it.
// Start at Run and Compare.
package layouts

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Node is what is simulated.
type Node struct {
	Chip gpu.Chip
	GPUs int
	// Destroy and Create are what one instance takes. Reset is what a change of the
	// whole GPU takes besides, where the site's tool resets it.
	Destroy time.Duration
	Create  time.Duration
	Reset   time.Duration
}

// MaxGPUs bounds a simulated node.
const MaxGPUs = 16

func checkGPUs(n int) error {
	if n < 1 || n > MaxGPUs {
		return fmt.Errorf("%d GPUs; 1 to %d can be simulated", n, MaxGPUs)
	}
	return nil
}

func (n Node) check() error {
	if err := checkGPUs(n.GPUs); err != nil {
		return err
	}
	if n.Destroy < 0 || n.Create < 0 || n.Reset < 0 {
		return errors.New("a change cannot take a negative time")
	}
	return mig.CheckChip(n.Chip)
}

// Policy is a way to run a node. It is made for each run.
type Policy interface {
	// Name is a few words.
	Name() string
	// begin returns the policy's state for one run, and the layout of each GPU.
	begin(n Node, c *mig.Catalogue) (driver, []gpu.Layout, error)
}

// driver decides during a run.
type driver interface {
	// takes reports whether jobs of a class may start on an idle instance.
	takes(w *world, g int, in *instance, c *class) bool
	// decide may change the world after jobs have started; it is called at every event.
	decide(w *world) error
	// wake is when decide wants to be called at the latest; ok is false if events are enough.
	wake(w *world) (at time.Duration, ok bool)
}

// Result is what one policy did with one trace.
type Result struct {
	Policy string `json:"policy"`
	Jobs   int    `json:"jobs"`
	// Started are the jobs that ran; the others would wait for ever.
	Started int `json:"started"`
	// MeanWait and P95Wait, in seconds, are those of the jobs that ran.
	MeanWait float64 `json:"mean_wait_seconds"`
	P95Wait  float64 `json:"p95_wait_seconds"`
	// SMs and Memory are the parts that the jobs needed of the GPUs' SMs without
	// MIG, and of the memory of a full-size instance, over the time from the first arrival to the last
	// end; nil if not known.
	SMs    *float64 `json:"sm_utilisation,omitempty"`
	Memory *float64 `json:"memory_utilisation,omitempty"`
	// Hours is that time.
	Hours float64 `json:"hours"`
	// Changes of a GPU's layout, and the instances destroyed and created by them.
	Changes   int `json:"changes"`
	Destroyed int `json:"destroyed"`
	Created   int `json:"created"`
	// Disturbed are jobs whose instance was taken from them.
	Disturbed int `json:"disturbed"`

	waits []time.Duration
}

// world is the state of a run.
type world struct {
	node      Node
	catalogue *mig.Catalogue
	now       time.Duration
	gpus      []gpuState
	classes   []*class
	jobs      []job
	arrived   int // jobs[:arrived] have come
	running   int
	last      time.Duration // end of the last job
	result    Result
	// stir counts what happened, so that a driver can tell that nothing did.
	stir int
}

type gpuState struct {
	uuid      gpu.UUID
	instances []*instance
	// changing is when the change under way ends.
	changing time.Duration
}

type instance struct {
	place   gpu.Place
	profile gpu.Profile
	id      int
	// ready is when it exists.
	ready time.Duration
	// job is the number of the running one, -1 if none, until end.
	job int
	end time.Duration
	// kept: no new job may start.
	kept bool
}

func (in *instance) idle(now time.Duration) bool { return in.job < 0 && in.ready <= now }

// run simulates one trace under one policy.
func run(n Node, t Trace, p Policy, c *mig.Catalogue) (Result, error) {
	w, err := newWorld(n, t, c)
	if err != nil {
		return Result{}, err
	}
	d, layouts, err := p.begin(n, c)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", p.Name(), err)
	}
	if err := w.lay(layouts); err != nil {
		return Result{}, fmt.Errorf("%s: %w", p.Name(), err)
	}
	for {
		w.arrive()
		w.finish()
		w.start(d)
		if err := d.decide(w); err != nil {
			return Result{}, fmt.Errorf("%s, after %s: %w", p.Name(), w.now, err)
		}
		w.start(d)
		next, ok := w.next(d)
		if !ok {
			return w.sum(p.Name()), nil
		}
		w.now = next
	}
}

// newWorld has every job and no instance.
func newWorld(n Node, t Trace, c *mig.Catalogue) (*world, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	w := &world{node: n, catalogue: c}
	for i := range n.GPUs {
		w.gpus = append(w.gpus, gpuState{uuid: gpu.UUID(fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", i))})
	}
	return w, w.classify(t)
}

// lay gives each GPU its first layout.
func (w *world) lay(layouts []gpu.Layout) error {
	for g, l := range layouts {
		if err := mig.Legal(w.node.Chip, l); err != nil {
			return err
		}
		for _, at := range l {
			w.create(g, at, 0)
		}
	}
	return nil
}

func (w *world) create(g int, at gpu.Place, ready time.Duration) {
	p, _ := w.node.Chip.Profile(at.Profile)
	id := 1
	for _, in := range w.gpus[g].instances {
		id = max(id, in.id+1)
	}
	w.gpus[g].instances = append(w.gpus[g].instances, &instance{place: at, profile: p, id: id, ready: ready, job: -1})
}

// arrive puts the jobs that have come into their queues.
func (w *world) arrive() {
	for ; w.arrived < len(w.jobs) && w.jobs[w.arrived].arrival <= w.now; w.arrived++ {
		c := w.jobs[w.arrived].class
		c.waiting = append(c.waiting, w.arrived)
		w.stir++
	}
}

// finish ends the jobs whose time has come.
func (w *world) finish() {
	for g := range w.gpus {
		for _, in := range w.gpus[g].instances {
			if in.job >= 0 && in.end <= w.now {
				in.job = -1
				w.running--
				w.last = max(w.last, in.end)
				w.stir++
			}
		}
	}
}

// start gives idle instances to the jobs that have waited longest, to each the
// smallest that will do.
func (w *world) start(d driver) {
	for {
		var first *class
		var on *instance
		for _, c := range w.classes {
			if len(c.waiting) == 0 || first != nil && c.waiting[0] > first.waiting[0] {
				continue
			}
			if in := w.smallest(d, c); in != nil {
				first, on = c, in
			}
		}
		if first == nil {
			return
		}
		j := first.waiting[0]
		first.waiting = first.waiting[1:]
		on.job, on.end = j, w.now+w.jobs[j].duration
		w.running++
		w.stir++
		w.result.waits = append(w.result.waits, w.now-w.jobs[j].arrival)
		w.result.Started++
	}
}

// smallest is the smallest idle instance that a class may use, nil if none.
func (w *world) smallest(d driver, c *class) (best *instance) {
	for g := range w.gpus {
		for _, in := range w.gpus[g].instances {
			if in.kept || !in.idle(w.now) || !c.uses(in.profile) || !d.takes(w, g, in, c) {
				continue
			}
			if best == nil || larger(best.profile, in.profile) {
				best = in
			}
		}
	}
	return best
}

// next is when something happens; not ok if nothing will.
func (w *world) next(d driver) (at time.Duration, ok bool) {
	at = math.MaxInt64
	sooner := func(t time.Duration) {
		if t > w.now {
			at, ok = min(at, t), true
		}
	}
	if w.arrived < len(w.jobs) {
		sooner(w.jobs[w.arrived].arrival)
	}
	for g := range w.gpus {
		sooner(w.gpus[g].changing)
		for _, in := range w.gpus[g].instances {
			sooner(in.ready)
			if in.job >= 0 {
				sooner(in.end)
			}
		}
	}
	if t, wakes := d.wake(w); wakes {
		sooner(t)
	}
	return at, ok
}

// change takes a GPU from its layout to another: destroys, then creates, one
// after another. Whoever runs on what goes is disturbed, and lost.
func (w *world) change(g int, to gpu.Layout, extra time.Duration) {
	s := &w.gpus[g]
	var keep []*instance
	at, had := w.now+extra, gpu.Layout{}
	for _, in := range s.instances {
		if to.Contains(in.place) {
			keep, had = append(keep, in), append(had, in.place)
			continue
		}
		if in.job >= 0 {
			w.result.Disturbed++
			w.running--
		}
		at += w.node.Destroy
		w.result.Destroyed++
	}
	s.instances = keep
	for _, p := range to.Without(gpu.NewLayout(had...)) {
		at += w.node.Create
		w.create(g, p, at)
		w.result.Created++
	}
	s.changing = at
	w.result.Changes++
	w.stir++
}

// waiting is the number of jobs that have come and not started.
func (w *world) waiting() (n int) {
	for _, c := range w.classes {
		n += len(c.waiting)
	}
	return n
}

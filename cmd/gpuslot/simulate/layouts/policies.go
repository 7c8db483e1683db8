package layouts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Layout is a static layout for ever. Text is what mig.ParseWant reads, for
// each GPU in turn behind a semicolon; further GPUs have the last one. Title
// stands for it in tables if not empty.
type Layout struct{ Text, Title string }

// Name is the layout.
func (l Layout) Name() string {
	if l.Title != "" {
		return l.Title
	}
	return "static " + l.Text
}

func (l Layout) begin(n Node, c *mig.Catalogue) (driver, []gpu.Layout, error) {
	texts := strings.Split(l.Text, ";")
	if len(texts) > n.GPUs {
		return nil, nil, fmt.Errorf("layouts for %d GPUs; there are %d", len(texts), n.GPUs)
	}
	var all []gpu.Layout
	for i := range n.GPUs {
		want, err := mig.ParseWant(n.Chip, texts[min(i, len(texts)-1)])
		if err != nil {
			return nil, nil, err
		}
		plan, err := mig.PlanWant(c, gpu.MIGGPU{Chip: n.Chip}, want)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, plan.GPUs[0].Layout)
	}
	return still{}, all, nil
}

// still never changes anything.
type still struct{}

func (still) takes(*world, int, *instance, *class) bool { return true }
func (still) decide(*world) error                       { return nil }
func (still) wake(*world) (time.Duration, bool)         { return 0, false }

// Reflash gives a whole GPU another layout when no job runs on it and some wait
// that it does not serve: the way of tools that know only the GPU.
type Reflash struct {
	// First is the layout to begin with, as in Layout.
	First string
	// DrainAfter is how long a job waits before a GPU takes no new jobs for its
	// sake; 0: never, the GPU has to become idle by itself.
	DrainAfter time.Duration
}

// Name says when it happens.
func (r Reflash) Name() string {
	if r.DrainAfter > 0 {
		return fmt.Sprintf("drain after %s, reflash the GPU", short(r.DrainAfter))
	}
	return "reflash the GPU when idle"
}

func (r Reflash) begin(n Node, c *mig.Catalogue) (driver, []gpu.Layout, error) {
	_, first, err := Layout{Text: r.First}.begin(n, c)
	if err != nil {
		return nil, nil, err
	}
	ls, err := c.Layouts(n.Chip)
	if err != nil {
		return nil, nil, err
	}
	d := &reflasher{after: r.DrainAfter, draining: -1}
	seen := map[string]bool{}
	for l := range ls.Maximal() {
		if name := mig.FormatCounts(n.Chip, l); !seen[name] {
			seen[name], d.layouts = true, append(d.layouts, l)
		}
	}
	return d, first, nil
}

type reflasher struct {
	after    time.Duration
	layouts  []gpu.Layout
	draining int // GPU, -1: none
}

func (d *reflasher) takes(_ *world, g int, _ *instance, _ *class) bool { return g != d.draining }

func (d *reflasher) decide(w *world) error {
	if d.draining >= 0 && !d.stuck(w, d.after) {
		d.draining = -1
	}
	for g := range w.gpus {
		if w.gpus[g].changing > w.now || w.busy(g) || w.waiting() == 0 {
			continue
		}
		w.change(g, d.best(w), w.node.Reset)
		if g == d.draining {
			d.draining = -1
		}
	}
	if d.after > 0 && d.draining < 0 && d.stuck(w, d.after) {
		d.draining = w.leastBusy()
	}
	return nil
}

// wake at the time when the oldest job has waited long enough.
func (d *reflasher) wake(w *world) (at time.Duration, ok bool) {
	for _, c := range w.classes {
		if len(c.waiting) > 0 && d.after > 0 {
			if t := w.jobs[c.waiting[0]].arrival + d.after; t > w.now && (!ok || t < at) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// stuck: a job has waited for so long, and no instance of the node would serve it.
func (d *reflasher) stuck(w *world, after time.Duration) bool {
	return slices.ContainsFunc(w.classes, func(c *class) bool {
		return len(c.waiting) > 0 && w.now-w.jobs[c.waiting[0]].arrival >= after && !w.serves(c)
	})
}

// oldest is the class of the job that has waited longest, first of all for an
// instance that the node does not have.
func (d *reflasher) oldest(w *world) (first *class) {
	stuck := d.stuck(w, 0)
	for _, c := range w.classes {
		if len(c.waiting) > 0 && (!stuck || !w.serves(c)) && (first == nil || c.waiting[0] < first.waiting[0]) {
			first = c
		}
	}
	return first
}

// best is the full layout that serves the oldest job, and beside it most
// slices of what waits, then most jobs, then leaves most room for more like the oldest.
func (d *reflasher) best(w *world) gpu.Layout {
	var best gpu.Layout
	worth := []int{-1}
	oldest := d.oldest(w)
	for _, l := range d.layouts {
		v := []int{0, 0, number(l, oldest)}
		if v[2] == 0 {
			continue
		}
		for _, c := range w.classes {
			n := min(number(l, c), len(c.waiting))
			v[0] += n * c.profile.Slices
			v[1] += n
		}
		if slices.Compare(v, worth) > 0 {
			best, worth = l, v
		}
	}
	return best
}

// number of instances of a class's profile in a layout.
func number(l gpu.Layout, c *class) (n int) {
	for _, at := range l {
		if at.Profile == c.profile.ID {
			n++
		}
	}
	return n
}

// serves reports whether the node has an instance for a class, in use or not.
func (w *world) serves(c *class) bool {
	for g := range w.gpus {
		for _, in := range w.gpus[g].instances {
			if c.uses(in.profile) {
				return true
			}
		}
	}
	return false
}

func (w *world) busy(g int) bool {
	return slices.ContainsFunc(w.gpus[g].instances, func(in *instance) bool { return in.job >= 0 })
}

// leastBusy is the GPU with the fewest slices in use, but some; -1 if none has.
func (w *world) leastBusy() int {
	best, least := -1, -1
	for g := range w.gpus {
		n := 0
		if !w.busy(g) {
			continue
		}
		for _, in := range w.gpus[g].instances {
			if in.job >= 0 {
				n += in.profile.Slices
			}
		}
		if least < 0 || n < least {
			best, least = g, n
		}
	}
	return best
}

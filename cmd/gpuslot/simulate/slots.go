package simulate

import (
	"fmt"
	"math"
	"time"
)

// slot is one slot of the pool, and the jobs on it.
type slot struct {
	shape, node int32
	// at is its number in its shape.
	at int32
	// gpu is the number of its GPU among all of the pool; -1 for whole ones.
	gpu int32
	// plan is its number in the node's plan.
	plan       int32
	size, free amount
	// first is the first of its runs; -1: none.
	first int32
	jobs  int32
	// off: there is no MIG device at its place now; kept: it takes no new jobs.
	off, kept bool
	// touched is when its jobs' progress was last counted.
	touched float64
	// freed: it stands in the list of those with more room since the last cycle.
	freed bool
	// does is what its jobs keep busy now.
	does activity
}

// run is a job that runs.
type run struct {
	job     job
	takes   amount
	claimed float64
	began   float64
	// left is the part still to do, rate how much of it a second does.
	left, rate float64
	// limit is its active thread percentage as a part of the GPU.
	limit float32
	next  int32
}

// job is what is kept of one that has come.
type job struct {
	arrival float64
	seconds float64
	dead    float32
	kernel  float32
	sm, bw  float32
	// peak is the VRAM that it really uses, MiB; 0 if not known.
	peak   int32
	number int32
	class  int32
}

func (j *job) work() Work {
	return Work{Seconds: j.seconds, Dead: float64(j.dead), Kernel: float64(j.kernel), SM: float64(j.sm),
		Bandwidth: float64(j.bw)}
}

// node is one machine.
type node struct {
	group int32
	// first and last are its slots, last not one of them.
	first, last int32
	cpus, used  int32
	// stretch is how much longer the host's part of its jobs takes.
	stretch float64
}

// newWorld plans every group and lays the slots out.
func newWorld(pool Pool, policy Policy, jobs Jobs, o Options) (*world, error) {
	if err := pool.Check(); err != nil {
		return nil, err
	}
	w := &world{pool: pool, policy: policy, options: o, matching: pool.Matching, source: jobs,
		cycle: math.Inf(1), spare: -1}
	for i, g := range pool.Groups {
		n, err := w.nodeOf(i, g, policy)
		if err != nil {
			return nil, err
		}
		w.plans = append(w.plans, n)
	}
	if err := w.build(); err != nil {
		return nil, err
	}
	w.queue = newQueue()
	w.follow = newFollower(w)
	return w, nil
}

// build makes the nodes and their slots.
func (w *world) build() error {
	gpus := 0
	for i, g := range w.pool.Groups {
		n := &w.plans[i]
		for range g.Count {
			w.nodes = append(w.nodes, node{group: int32(i), first: int32(len(w.slots)), last: int32(len(w.slots) + len(n.slots)),
				cpus: int32(g.Inventory.Host.CPUs), stretch: 1})
			w.addSlots(n, int32(len(w.nodes)-1), gpus)
			gpus += n.gpus
		}
		if len(w.slots) > maxSlots {
			return fmt.Errorf("the pool has more than %d slots; simulate fewer nodes", maxSlots)
		}
		w.sums.idle += float64(g.Count) * (g.Power.Host + g.Power.Idle*float64(n.gpus))
		w.sums.vramAll += float64(g.Count) * float64(n.vram)
	}
	w.sums.gpusAll = float64(gpus)
	w.busy = make([]float64, gpus)
	w.agenda = newAgenda(len(w.slots))
	for _, s := range w.shapes {
		s.free = newTree(len(s.slots))
	}
	for i := range w.slots {
		w.offer(int32(i))
	}
	return nil
}

func (w *world) addSlots(n *nodePlan, number int32, gpus int) {
	for i, p := range n.slots {
		s := w.shapes[p.shape]
		one := slot{shape: int32(p.shape), node: number, at: int32(len(s.slots)), gpu: -1, plan: int32(i), size: p.size,
			free: p.size, first: -1, off: p.off}
		if p.gpu >= 0 {
			one.gpu = int32(gpus + p.gpu)
		}
		s.slots = append(s.slots, int32(len(w.slots)))
		w.slots = append(w.slots, one)
	}
}

// offer gives the shape's tree what the slot has free.
func (w *world) offer(i int32) {
	s := &w.slots[i]
	a := s.free
	if s.off || s.kept {
		a = amount{gpus: -1}
	}
	w.shapes[s.shape].free.set(int(s.at), a)
}

// place names a slot.
func (w *world) place(at int32) Place {
	s := &w.slots[at]
	n := w.nodes[s.node]
	p := w.plans[n.group].slots[s.plan]
	before := 0
	for _, g := range w.pool.Groups[:n.group] {
		before += g.Count
	}
	return Place{Group: w.pool.Groups[n.group].Name, Node: int(s.node) - before, GPU: p.gpu, Device: p.place}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

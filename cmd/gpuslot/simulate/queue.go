package simulate

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// request is what a job asks for.
type request struct {
	gpus, vram, cpus, memory int64
}

// asks is the request as plan.GPU.Holds takes it.
func (r request) asks() (gpu.MiB, plan.Resources) {
	return gpu.MiB(r.vram), plan.Resources{CPUs: int(r.cpus), Memory: gpu.MiB(r.memory)}
}

// class are the jobs of one owner that ask for the same: HTCondor's autocluster.
type class struct {
	request
	owner int32
	// shapes are those that can hold its jobs, in the order of the pool, MIG devices
	// the smallest first; needs are what they take there.
	shapes []int32
	needs  []amount
	// waiting are its jobs from head on.
	waiting []job
	head    int
	// blocked: at the last search no slot had room. Then only what has become free
	// since can have some; seen is how many of those were looked at in this cycle.
	blocked bool
	seen    int
	active  bool
}

func (c *class) count() int { return len(c.waiting) - c.head }

// owner is whose jobs they are.
type owner struct{ running int }

// queue holds the jobs that wait.
type queue struct {
	classes []*class
	known   map[classKey]int32
	owners  []owner
	named   map[string]int32
	// active are the classes with jobs that wait.
	active []int32
	// heap is scratch of a cycle.
	heap []turn
	n    int
}

type classKey struct {
	request
	owner int32
}

func newQueue() queue { return queue{known: map[classKey]int32{}, named: map[string]int32{}} }

// class finds the class of a job.
func (q *queue) class(w *world, j Job) int32 {
	o, ok := q.named[j.Owner]
	if !ok {
		o = int32(len(q.owners))
		q.named[j.Owner] = o
		q.owners = append(q.owners, owner{})
	}
	k := classKey{request{int64(j.GPUs), int64(j.VRAM), int64(j.CPUs), int64(j.Memory)}, o}
	if i, ok := q.known[k]; ok {
		return i
	}
	c := &class{request: k.request, owner: o}
	for i, s := range w.shapes {
		if need, ok := s.need(c.request); ok {
			c.shapes = append(c.shapes, int32(i))
			c.needs = append(c.needs, need)
		}
	}
	w.order(c)
	i := int32(len(q.classes))
	q.known[k] = i
	q.classes = append(q.classes, c)
	return i
}

// order puts the smallest MIG devices first, as the startd does with its ids.
func (w *world) order(c *class) {
	at := make([]int, len(c.shapes))
	for i := range at {
		at[i] = i
	}
	size := func(i int) gpu.MiB {
		if s := w.shapes[c.shapes[i]]; s.kind == device {
			return s.gpu.Pool
		}
		return 1 << 40
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(size(a), size(b)) })
	shapes, needs := make([]int32, len(at)), make([]amount, len(at))
	for to, from := range at {
		shapes[to], needs[to] = c.shapes[from], c.needs[from]
	}
	c.shapes, c.needs = shapes, needs
}

// push appends a job.
func (q *queue) push(i int32, j job) {
	c := q.classes[i]
	if c.count() == 0 {
		c.blocked = false // what became free while none waited was not looked at
	}
	if !c.active {
		c.active = true
		q.active = append(q.active, i)
	}
	c.waiting = append(c.waiting, j)
	q.n++
}

// pop takes the first job out.
func (q *queue) pop(i int32) job {
	c := q.classes[i]
	j := c.waiting[c.head]
	c.head++
	q.n--
	switch {
	case c.head == len(c.waiting):
		c.waiting, c.head = c.waiting[:0], 0
	case c.head > 1024 && c.head > len(c.waiting)/2:
		c.waiting = append(c.waiting[:0], c.waiting[c.head:]...)
		c.head = 0
	}
	return j
}

// turn is a class's place in a cycle.
type turn struct {
	running int
	arrival float64
	class   int32
}

func (t turn) before(o turn) bool {
	switch {
	case t.running != o.running:
		return t.running < o.running
	case t.arrival != o.arrival:
		return t.arrival < o.arrival
	}
	return t.class < o.class
}

// turn is when a class comes.
func (q *queue) turn(i int32, order Order) turn {
	c := q.classes[i]
	t := turn{arrival: c.waiting[c.head].arrival, class: i}
	if order == ByOwner {
		t.running = q.owners[c.owner].running
	}
	return t
}

// begin collects the classes that have jobs waiting.
func (q *queue) begin(order Order) {
	q.heap = q.heap[:0]
	q.active = slices.DeleteFunc(q.active, func(i int32) bool {
		c := q.classes[i]
		c.active = c.count() > 0
		return !c.active
	})
	for _, i := range q.active {
		q.classes[i].seen = 0
		q.heap = append(q.heap, q.turn(i, order))
	}
	for i := len(q.heap)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
}

func (q *queue) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			return
		}
		if child+1 < len(q.heap) && q.heap[child+1].before(q.heap[child]) {
			child++
		}
		if !q.heap[child].before(q.heap[i]) {
			return
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
}

// drop takes the first turn out.
func (q *queue) drop() {
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	q.sink(0)
}

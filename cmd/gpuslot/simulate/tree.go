package simulate

// amount is what a slot has or a job takes: jobs or whole GPUs, VRAM and memory in
// MiB, CPUs.
type amount struct{ gpus, vram, cpus, memory int32 }

func (a amount) holds(b amount) bool {
	return a.gpus >= b.gpus && a.vram >= b.vram && a.cpus >= b.cpus && a.memory >= b.memory
}

func (a amount) plus(b amount) amount {
	return amount{a.gpus + b.gpus, a.vram + b.vram, a.cpus + b.cpus, a.memory + b.memory}
}

func (a amount) less(b amount) amount {
	return amount{a.gpus - b.gpus, a.vram - b.vram, a.cpus - b.cpus, a.memory - b.memory}
}

func (a amount) atLeast(b amount) amount {
	return amount{max(a.gpus, b.gpus), max(a.vram, b.vram), max(a.cpus, b.cpus), max(a.memory, b.memory)}
}

// tree finds a slot of many that holds an amount: each node has the largest of
// every value below it, so that a search leaves out what cannot hold it.
type tree struct {
	// most are the nodes, the root at 1, the leaves from width on.
	most  []amount
	width int
}

func newTree(n int) tree {
	width := 1
	for width < n {
		width *= 2
	}
	return tree{make([]amount, 2*width), width}
}

// set changes one leaf.
func (t *tree) set(i int, a amount) {
	i += t.width
	t.most[i] = a
	for i /= 2; i > 0; i /= 2 {
		m := t.most[2*i].atLeast(t.most[2*i+1])
		if m == t.most[i] {
			return
		}
		t.most[i] = m
	}
}

// find is the first leaf below node i that holds the amount, -1 if none does. Freest
// looks first where most VRAM is free.
func (t *tree) find(i int, a amount, freest bool) int {
	if !t.most[i].holds(a) {
		return -1
	}
	if i >= t.width {
		return i - t.width
	}
	one, other := 2*i, 2*i+1
	if freest && t.most[other].vram > t.most[one].vram {
		one, other = other, one
	}
	if j := t.find(one, a, freest); j >= 0 {
		return j
	}
	return t.find(other, a, freest)
}

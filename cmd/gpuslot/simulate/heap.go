package simulate

// agenda has the time of the next end of each slot, the earliest on top; of equal
// times the slot with the smaller number. It is a heap of four children a node,
// which knows where each slot stands.
type agenda struct {
	at   []float64 // by slot
	heap []int32
	// where a slot stands in the heap; -1: it does not.
	where []int32
}

func newAgenda(n int) *agenda {
	a := &agenda{at: make([]float64, n), where: make([]int32, n)}
	for i := range a.where {
		a.where[i] = -1
	}
	return a
}

// next is the earliest slot; not ok if nothing runs.
func (a *agenda) next() (slot int32, at float64, ok bool) {
	if len(a.heap) == 0 {
		return 0, 0, false
	}
	return a.heap[0], a.at[a.heap[0]], true
}

// set gives a slot another time.
func (a *agenda) set(slot int32, at float64) {
	a.at[slot] = at
	if a.where[slot] < 0 {
		a.where[slot] = int32(len(a.heap))
		a.heap = append(a.heap, slot)
	}
	a.down(a.up(a.where[slot]))
}

// drop takes a slot out.
func (a *agenda) drop(slot int32) {
	i := a.where[slot]
	if i < 0 {
		return
	}
	a.where[slot] = -1
	last := int32(len(a.heap) - 1)
	moved := a.heap[last]
	a.heap = a.heap[:last]
	if i == last {
		return
	}
	a.heap[i], a.where[moved] = moved, i
	a.down(a.up(i))
}

func (a *agenda) before(x, y int32) bool {
	return a.at[x] < a.at[y] || a.at[x] == a.at[y] && x < y
}

func (a *agenda) up(i int32) int32 {
	slot := a.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		above := a.heap[parent]
		if !a.before(slot, above) {
			break
		}
		a.heap[i], a.where[above] = above, i
		i = parent
	}
	a.heap[i], a.where[slot] = slot, i
	return i
}

func (a *agenda) down(i int32) {
	slot := a.heap[i]
	n := int32(len(a.heap))
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		for c := child + 1; c < min(child+3+1, n); c++ {
			if a.before(a.heap[c], a.heap[child]) {
				child = c
			}
		}
		if !a.before(a.heap[child], slot) {
			break
		}
		below := a.heap[child]
		a.heap[i], a.where[below] = below, i
		i = child
	}
	a.heap[i], a.where[slot] = slot, i
}

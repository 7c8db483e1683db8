package mig

import (
	"fmt"
	"strings"
)

// outcome is the layout chosen for one GPU, and the places that would serve one
// more of a profile.
type outcome struct {
	board  board
	set    uint64
	places uint64
}

// whyNot explains why the GPUs have no more of some places.
func whyNot(all []outcome) (string, *Wait) {
	var best Wait
	none := true
	for _, o := range all {
		w, possible := o.wait()
		if !possible {
			continue
		}
		if len(w.For) == 0 {
			return "other instances of the plan are worth more, or disturb less, in its room", nil
		}
		if none || len(w.For) < len(best.For) {
			best, none = w, false
		}
	}
	if none {
		return "the GPUs have as many as they can", nil
	}
	return best.sentence(), &best
}

// wait finds the layout with one more of the places for which the fewest pinned
// instances must go, and among these the fewest idle ones.
func (o outcome) wait() (w Wait, possible bool) {
	b, have := o.board, count(o.set&o.places)
	var best uint64
	for _, e := range b.ls.all {
		if count(e.set&o.places) == have+1 && (!possible || b.gentler(e.set, best)) {
			best, possible = e.set, true
		}
	}
	if !possible {
		return Wait{}, false
	}
	w = Wait{GPU: b.gpu.UUID, Place: strings.Join(b.names(best&o.places&^o.set), ","),
		Reserve: b.names(b.now &^ b.pinned &^ best)}
	for _, p := range b.ls.layout(b.pinned &^ best) {
		for _, in := range b.gpu.Instances {
			if in.Place == p {
				w.For = append(w.For, b.why(in))
			}
		}
	}
	return w, true
}

// gentler tells whether a lets more instances stay than c.
func (b board) gentler(a, c uint64) bool {
	pinnedA, pinnedC := count(b.pinned&^a), count(b.pinned&^c)
	return pinnedA < pinnedC || pinnedA == pinnedC && count(b.now&^a) < count(b.now&^c)
}

func (w Wait) sentence() string {
	s := fmt.Sprintf("%s on %s waits for what is in its way: %s", w.Place, w.GPU, strings.Join(w.For, "; "))
	if len(w.Reserve) > 0 {
		s += "; idle, to be kept free for it: " + strings.Join(w.Reserve, ", ")
	}
	return s
}

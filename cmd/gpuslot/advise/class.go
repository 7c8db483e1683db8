package advise

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// class are the jobs that one recommendation is for.
type class struct {
	key Key
	// asked are their request_vram, in the order of time; noRequest among them.
	asked []int64
	spans
	// grown ran again with a larger request.
	grown int
	// from, to and changed are those of all records.
	from, to, changed time.Time
}

// mostClasses of a family: whose requests are more than so many sizes at a time
// computes them, so that they are one class.
const mostClasses = 8

// classes divides a family by what its jobs asked for. A request that is another
// one's times the factor of growth belongs to that one's second tries. Requests
// that follow each other in time are one class whose request was changed; only
// those used side by side are different ones.
func (f family) classes(key Key, g growth, quantum gpu.MiB) []class {
	asked := slices.Sorted(maps.Keys(f))
	var firsts []class
	for _, r := range asked {
		if c := firstOf(firsts, r, g, quantum); c != nil {
			c.retry(f[r])
			continue
		}
		c := class{key: key, asked: []int64{r}}
		c.merge(f[r])
		firsts = append(firsts, c)
	}
	slices.SortStableFunc(firsts, func(a, b class) int {
		return cmp.Or(a.first().Compare(b.first()),
			cmp.Compare(a.asked[0], b.asked[0]))
	})
	var out []class
	for _, c := range firsts {
		if i := slices.IndexFunc(out, func(o class) bool { return follows(o, c) }); i >= 0 {
			out[i].join(c)
			continue
		}
		out = append(out, c)
	}
	if len(out) > mostClasses {
		for _, c := range out[1:] {
			out[0].join(c)
		}
		out = out[:1]
	}
	return out
}

func (c *class) join(o class) {
	c.asked = append(c.asked, o.asked...)
	c.merge(&o.spans)
	c.grown += o.grown
}

// firstOf finds the class of which r is a grown request.
func firstOf(cs []class, r int64, g growth, quantum gpu.MiB) *class {
	for i := range cs {
		first := float64(cs[i].asked[0])
		for k := 1; k <= g.tries && first > 0; k++ {
			if math.Abs(first*math.Pow(config.GrowthFactor, float64(k))-float64(r)) <= float64(quantum) {
				return &cs[i]
			}
		}
	}
	return nil
}

// retry counts second tries. Each stands for a first one that met its limit, of
// which the need is known now: those with the largest peaks are taken out.
func (c *class) retry(s *spans) {
	n := s.before.records + s.after.records
	c.grown += n
	n = c.after.forget(n)
	c.before.forget(n)
	c.merge(s)
}

// forget takes the needs of so many jobs out, and returns how many it had not.
func (t *tally) forget(n int) int {
	k := min(n, t.limited)
	t.limited, n = t.limited-k, n-k
	for _, b := range slices.Backward(slices.Sorted(maps.Keys(t.budgets))) {
		k := min(n, t.budgets[b])
		t.budgets[b] -= k
		t.peaks, n = t.peaks-k, n-k
		if t.budgets[b] == 0 {
			delete(t.budgets, b)
		}
	}
	return n
}

func (c class) first() time.Time { return c.all().first }

// follows reports whether b began when a had all but ended: one request took the
// other's place.
func follows(a, b class) bool {
	ta, tb := a.all(), b.all()
	overlap := ta.last.Sub(maxTime(ta.first, tb.first))
	shorter := min(ta.last.Sub(ta.first), tb.last.Sub(tb.first))
	return overlap <= shorter/10
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

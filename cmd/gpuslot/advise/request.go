package advise

import (
	"maps"
	"math"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// growth is what becomes of a job that meets its limit.
type growth struct{ tries int }

// Request is a recommended request_vram.
type Request struct {
	// MiB is a budget as the plan rounds it; 0 if there is not enough data.
	MiB int64 `json:"mib,omitempty"`
	// Risk is the promise: at most this part of the jobs need more, with
	// Confidence. Seen is the part of the recorded jobs that did.
	Risk       float64 `json:"risk,omitempty"`
	Confidence float64 `json:"confidence,omitempty"`
	Seen       float64 `json:"seen"`
	// Held is the promise about jobs that need more than their last try has; nil if
	// the jobs are too few to tell. Without growth it is Risk.
	Held *float64 `json:"held_risk,omitempty"`
	// Tries is how often such a job runs again, each time with more.
	Tries int `json:"growth_tries"`
	// Cost is the expected part of a GPU's pool, with second tries; of those that
	// were weighed it is the least. CostWithout is that of the request at the asked
	// risk without growth.
	Cost        float64  `json:"expected_pool_share,omitempty"`
	CostWithout *float64 `json:"pool_share_without_growth,omitempty"`
	// Jobs is how many recorded jobs it rests on, Needed how many there must be.
	Jobs   int `json:"jobs"`
	Needed int `json:"jobs_needed"`
	// Limited of them needed more than they had.
	Limited int `json:"jobs_over_their_limit,omitempty"`
	// Whole: it does not fit a share of any GPU of the model.
	Whole bool `json:"does_not_fit,omitempty"`
}

// needs are how much VRAM jobs needed: budgets in quanta, ascending, with counts,
// and those that needed more than they had.
type needs struct {
	budgets []int32
	counts  []int
	n       int
	limited int
	quantum gpu.MiB
	minimum gpu.MiB
}

func needsOf(t *tally, quantum, minimum gpu.MiB) needs {
	d := needs{n: t.peaks + t.limited, limited: t.limited, quantum: quantum, minimum: minimum}
	d.budgets = slices.Sorted(maps.Keys(t.budgets))
	for _, b := range d.budgets {
		d.counts = append(d.counts, t.budgets[b])
	}
	return d
}

// above is how many jobs need more than a budget. What more than they had they
// needed is not known: it counts as more than anything.
func (d needs) above(m gpu.MiB) int {
	n := d.limited
	for i, b := range slices.Backward(d.budgets) {
		if gpu.MiB(b)*d.quantum <= m {
			break
		}
		n += d.counts[i]
	}
	return n
}

// leaving is the smallest budget above which at most so many jobs are; not ok if
// more than those needed more than they had.
func (d needs) leaving(most int) (gpu.MiB, bool) {
	n := d.limited
	if n > most {
		return 0, false
	}
	for i, b := range slices.Backward(d.budgets) {
		if n+d.counts[i] > most {
			return max(gpu.MiB(b)*d.quantum, d.minimum), true
		}
		n += d.counts[i]
	}
	return d.minimum, true
}

// quantile is the budget of the median job, or another one's, of those known.
func (d needs) quantile(q float64) (gpu.MiB, bool) {
	known := d.n - d.limited
	if known == 0 {
		return 0, false
	}
	rank := int(math.Ceil(q * float64(known)))
	for i, b := range d.budgets {
		if rank -= d.counts[i]; rank <= 0 {
			return gpu.MiB(b) * d.quantum, true
		}
	}
	return gpu.MiB(d.budgets[len(d.budgets)-1]) * d.quantum, true
}

// retryRisks are the risks that are weighed beside the asked one where jobs run
// again with more.
var retryRisks = []float64{0.10, 0.20}

// recommend chooses a request. Without growth it is the smallest of which the
// asked risk can be promised. With growth it is the one of least cost among
// those of the asked risk and of retryRisks; the doubt is then divided by their
// number, so that all promises hold together whichever is chosen.
func (d needs) recommend(risk float64, g growth, pool, largest gpu.MiB) Request {
	risks := []float64{risk}
	if g.tries > 0 {
		for _, r := range retryRisks {
			if r > risk {
				risks = append(risks, r)
			}
		}
	}
	doubt := (1 - Confidence) / float64(len(risks))
	out := Request{Jobs: d.n, Needed: enoughFor(risks[len(risks)-1], doubt), Limited: d.limited, Tries: g.tries}
	for _, r := range risks {
		m, ok := d.promised(r, doubt)
		if !ok {
			continue
		}
		if m > largest {
			out.Whole = true
			continue
		}
		cost := d.cost(m, g, pool, largest)
		if out.MiB == 0 || cost < out.Cost {
			out.MiB, out.Risk, out.Cost = int64(m), r, cost
		}
	}
	if out.MiB == 0 {
		out.Tries = 0
		return out
	}
	out.Whole = false
	out.Confidence, out.Seen = Confidence, d.part(gpu.MiB(out.MiB))
	out.Cost = round3(out.Cost)
	d.outlook(&out, risk, doubt, g, pool, largest)
	return out
}

func (d needs) promised(risk, doubt float64) (gpu.MiB, bool) {
	most, ok := mostOf(d.n, risk, doubt)
	if !ok {
		return 0, false
	}
	return d.leaving(most)
}

// outlook says what growth brings.
func (d needs) outlook(out *Request, risk, doubt float64, g growth, pool, largest gpu.MiB) {
	if g.tries == 0 {
		out.Held = &out.Risk
		return
	}
	last := d.grown(gpu.MiB(out.MiB), g.tries, largest)
	if m, ok := d.promised(risk, doubt); ok && m <= last {
		out.Held = &risk
	}
	if m, ok := d.promised(risk, 1-Confidence); ok && m <= largest {
		c := round3(float64(m) / float64(pool))
		out.CostWithout = &c
	}
}

// grown is a request after so many tries.
func (d needs) grown(m gpu.MiB, tries int, largest gpu.MiB) gpu.MiB {
	up := float64(m) * math.Pow(config.GrowthFactor, float64(tries))
	if up >= float64(largest) {
		return largest
	}
	return min(largest, (gpu.MiB(math.Ceil(up))+d.quantum-1)/d.quantum*d.quantum)
}

// cost is the part of a GPU's pool that a job keeps, by its run time, when those
// that need more run again with more: each try is taken to last as long as a job
// does, which is the most that it can.
func (d needs) cost(m gpu.MiB, g growth, pool, largest gpu.MiB) float64 {
	sum := float64(m)
	for try := 1; try <= g.tries && d.n > 0; try++ {
		before := d.grown(m, try-1, largest)
		if before >= largest {
			break
		}
		sum += d.part(before) * float64(d.grown(m, try, largest))
	}
	return sum / float64(max(pool, 1))
}

// part of the recorded jobs needs more than a budget.
func (d needs) part(m gpu.MiB) float64 {
	if d.n == 0 {
		return 0
	}
	return round3(float64(d.above(m)) / float64(d.n))
}

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }

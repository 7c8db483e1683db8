package simulate

import "math"

// histogram counts values in steps of 1 %, so that quantiles of ten million of
// them take a few thousand numbers. Values below its least count as 0.
type histogram struct {
	n, zero int64
	sum     float64
	counts  []int64
}

const (
	leastValue = 1e-3
	stepLog    = 0.00995033085316808285 // log(1.01)
)

func (h *histogram) add(v float64) {
	h.n++
	h.sum += v
	if v < leastValue {
		h.zero++
		return
	}
	i := int(math.Log(v/leastValue) / stepLog)
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, i+1-len(h.counts))...)
	}
	h.counts[i]++
}

func (h *histogram) mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// quantile is right within 1 %.
func (h *histogram) quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(h.n)))
	if rank <= h.zero {
		return 0
	}
	seen := h.zero
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return leastValue * math.Exp((float64(i)+0.5)*stepLog)
		}
	}
	return 0
}

package advise

import "math"

// Range is a number with its bounds. What is not known is nil.
type Range struct {
	Low      *float64 `json:"low,omitempty"`
	Expected *float64 `json:"expected,omitempty"`
	High     *float64 `json:"high,omitempty"`
}

// atBest is what is expected, or the most that it can be where only that is known.
func (r Range) atBest() *float64 {
	if r.Expected != nil {
		return r.Expected
	}
	return r.High
}

// ratio is a sum over jobs divided by another one, such as busy seconds by
// seconds, and how far it may be off: jobs are taken as drawn one by one.
type ratio struct {
	n                int
	s, t, ss, st, tt float64
}

func (r *ratio) add(s, t float64) {
	r.n++
	r.s, r.t = r.s+s, r.t+t
	r.ss, r.st, r.tt = r.ss+s*s, r.st+s*t, r.tt+t*t
}

// addKnown adds what is known.
func (r *ratio) addKnown(s *float64, t float64) {
	if s != nil {
		r.add(*s, t)
	}
}

func (r *ratio) merge(o ratio) {
	r.n += o.n
	r.s, r.t = r.s+o.s, r.t+o.t
	r.ss, r.st, r.tt = r.ss+o.ss, r.st+o.st, r.tt+o.tt
}

// value is the ratio; not ok without a job or a second.
func (r ratio) value() (v float64, ok bool) {
	if r.n == 0 || r.t <= 0 {
		return 0, false
	}
	return r.s / r.t, true
}

// deviation is the standard error of value.
func (r ratio) deviation() float64 {
	v, ok := r.value()
	if !ok || r.n < 2 {
		return math.Inf(1)
	}
	n := float64(r.n)
	return math.Sqrt(max(0, r.ss-2*v*r.st+v*v*r.tt)*n/(n-1)) / r.t
}

// twoSided is how many standard errors 95 % of a normal distribution are.
const twoSided = 1.96

// interval is value with 95 % bounds, never below 0; not ok where it is not known.
func (r ratio) interval() (low, v, high float64, ok bool) {
	v, ok = r.value()
	if !ok {
		return 0, 0, 0, false
	}
	d := twoSided * r.deviation()
	return max(0, v-d), v, v + d, true
}

// rangeOf rounds for people and files: more digits are not meant.
func rangeOf(low, v, high float64) Range { return Range{digits(low), digits(v), digits(high)} }

// digits is a pointer to four digits of a number, nil if it is none.
func digits(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	if v != 0 {
		unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
		v = math.Round(v/unit) * unit
		// The product has digits of its own.
		if unit < 1 {
			v = math.Round(v/unit) / math.Round(1/unit)
		}
	}
	return &v
}

package mig

import (
	"cmp"
	"math"
	"slices"
)

// worth is a score in three numbers, the first difference decides: value and age of what
// is served, and the rest as search.rest packs it. All are multiples of 1/fraction.
type worth struct{ value, age, rest int64 }

// fraction has the divisors 1 to 10: the best prices are mostly such fractions.
const fraction = 2520

// worthless is a loss above all others.
var worthless = worth{value: math.MaxInt64}

func (w worth) plus(v worth) worth { return worth{w.value + v.value, w.age + v.age, w.rest + v.rest} }

func (w worth) minus(v worth) worth { return worth{w.value - v.value, w.age - v.age, w.rest - v.rest} }

func (w worth) times(n int) worth {
	return worth{w.value * int64(n), w.age * int64(n), w.rest * int64(n)}
}

func (w worth) below(v worth) bool {
	if w.value != v.value {
		return w.value < v.value
	}
	return w.age < v.age || w.age == v.age && w.rest < v.rest
}

func (w worth) compare(v worth) int {
	return cmp.Or(cmp.Compare(w.value, v.value), cmp.Compare(w.age, v.age), cmp.Compare(w.rest, v.rest))
}

func (w *worth) level(i int) *int64 { return []*int64{&w.value, &w.age, &w.rest}[i] }

// price finds prices of the needs with a low bound, and what is lost at them. At prices, the
// sum of the best that each GPU can make, less the prices of what it serves, and of what the
// needs gain by buying as many as pays, is a bound of all plans (the Lagrangian dual). Any
// prices from zero give one. So rounding makes the search slower, but its plan stays exact.
func (s *search) price() {
	s.prices = make([]worth, len(s.needs))
	most := worth{value: 1} // of each level, to begin with steps of about its size
	for k, values := range s.values {
		s.prices[k].value = values[min(1, len(values)-1)].value / 2
		most.age = max(most.age, values[len(values)-1].age)
	}
	for _, kd := range s.kinds {
		for _, o := range kd.options {
			most.rest = max(most.rest, o.rest, -o.rest)
		}
	}
	for level := range 3 {
		if size := *most.level(level); size == 0 {
			continue
		} else if bound := s.lower(level, float64(size)); *bound.level(level)%fraction != 0 {
			break // no plan reaches this level of the bound: later levels decide nothing
		}
	}
	s.losses()
}

// lower finds the lowest bound of one level; those before it stay.
func (s *search) lower(level int, size float64) (best worth) {
	at, more := slices.Clone(s.prices), make([]int, len(s.needs))
	best = s.bound(at, more)
	units, x := make([]float64, len(at)), make([]float64, len(at))
	for k, values := range s.values {
		units[k] = size
		if level == 0 && len(values) > 1 {
			units[k] = float64(values[1].value)
		}
		x[k] = float64(*at[k].level(level)) / units[k]
	}
	minimize(x, func(slope []float64) {
		for k := range at {
			*at[k].level(level) = int64(math.Round(units[k] * max(-farthest, min(x[k], farthest))))
			if at[k].below(worth{}) {
				at[k] = worth{}
			}
		}
		if bound := s.bound(at, more); bound.below(best) {
			best = bound
			copy(s.prices, at)
		}
		copy(at, s.prices)
		for k := range slope {
			slope[k] = float64(more[k]) * units[k]
		}
	})
	return best
}

// bound is that of all plans at the prices; more is how many more of each need the GPUs serve
// at them than the needs buy: the slope of the bound.
func (s *search) bound(prices []worth, more []int) (sum worth) {
	for k, values := range s.values {
		n := bought(values, prices[k])
		more[k] = -n
		sum = sum.plus(values[n].minus(prices[k].times(n)))
	}
	for _, kd := range s.kinds {
		best, most := 0, kd.options[0].priced(prices)
		for i := range kd.options {
			if w := kd.options[i].priced(prices); most.below(w) {
				best, most = i, w
			}
		}
		sum = sum.plus(most.times(len(kd.boards)))
		for _, v := range kd.options[best].serves {
			more[v.need] += v.n * len(kd.boards)
		}
	}
	return sum
}

// bought is the number that pays at a price. The worth of one more never grows.
func bought(values []worth, price worth) int {
	n := 0
	for n+1 < len(values) && price.below(values[n+1].minus(values[n])) {
		n++
	}
	return n
}

// priced is what a layout is worth at the prices.
func (o *option) priced(prices []worth) worth {
	w := worth{rest: o.rest}
	for _, v := range o.serves {
		w = w.plus(prices[v.need].times(v.n))
	}
	return w
}

// losses finds what each option and each number served loses at the prices.
func (s *search) losses() {
	for k, values := range s.values {
		n, price := bought(values, s.prices[k]), s.prices[k]
		excess, lacked := make([]worth, len(values)), make([]worth, len(values))
		for i, v := range values {
			loss := values[n].minus(v).minus(price.times(n - i))
			if i < n {
				lacked[i] = loss
			} else {
				excess[i] = loss
			}
		}
		for range s.needs[k].most { // above the demand each loses its price
			excess = append(excess, excess[len(excess)-1].plus(price))
		}
		s.excess, s.lacked = append(s.excess, excess), append(s.lacked, lacked)
	}
	for _, kd := range s.kinds {
		top := slices.MaxFunc(kd.options, func(a, b option) int { return a.priced(s.prices).compare(b.priced(s.prices)) })
		most := top.priced(s.prices)
		for i := range kd.options {
			kd.options[i].loss = most.minus(kd.options[i].priced(s.prices))
		}
		slices.SortStableFunc(kd.options, func(a, b option) int { return a.loss.compare(b.loss) })
	}
}

// What minimize was tuned to, by the plans of many demands.
const (
	rounds, strides            = 150, 20 // strides are the most in one direction
	firstStep, longer, shorter = 0.3, 1.06, 0.95
	flatter                    = 0.75
	farthest                   = 16 // no price is more times the worth of the first served
)

// minimize moves x towards the minimum of a convex function of a few variables, which need not be
// smooth, by Shor's r-algorithm: it flattens the space along each difference of two slopes, so
// that it follows a fold. The function writes its slope at x.
func minimize(x []float64, function func(slope []float64)) {
	slope, last, space := make([]float64, len(x)), make([]float64, len(x)), make([][]float64, len(x))
	for i := range space {
		space[i] = make([]float64, len(x))
		space[i][i] = 1
	}
	function(slope)
	step := firstStep
	for range rounds {
		way := steepest(space, slope)
		copy(last, slope)
		for n := 1; ; n++ {
			for i := range x {
				x[i] -= step * way[i]
			}
			if function(slope); dot(way, slope) <= 0 || n == strides {
				break
			}
			step *= longer
		}
		step *= shorter
		for i := range last {
			last[i] -= slope[i]
		}
		fold := steepest(space, last)
		for i, row := range space {
			for j := range row {
				row[j] -= flatter * fold[i] * fold[j]
			}
		}
	}
}

// steepest is a slope's direction in a space, of length 1 there (or 0).
func steepest(space [][]float64, slope []float64) (way []float64) {
	for _, row := range space {
		way = append(way, dot(row, slope))
	}
	if square := dot(way, slope); square > 0 {
		for i := range way {
			way[i] /= math.Sqrt(square)
		}
	}
	return way
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

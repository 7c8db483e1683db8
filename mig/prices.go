package mig

import "math"

// prices bound from above what a state can become: if every further instance
// that serves could be bought and sold at a price, each GPU would choose for
// itself (Lagrangian relaxation). Any prices that are not negative give a true
// bound, whatever rounding did to them; those of the linear programme
// (simplex.go) give the best one. Prices are scores, compared like them; all is
// reckoned in whole numbers.
type prices struct {
	box *box
	// scale is what a score is multiplied by: the fraction that prices are whole
	// multiples of. With 0 nothing is worth anything: a bound below 0 then shows
	// that the box is empty.
	scale int64
	tolls []levelToll
	// gain is, for each kind and option, what a GPU gains by it at prices.
	gain [][]score
	// rest is the most that the GPUs of the kinds from each on can gain.
	rest []score
	// worth is, for each need and number served, the value of these and the most
	// that serving more can gain over its price.
	worth [][]score
}

// levelToll is what each point of one level of the score above so many costs:
// the price of a cut (programme.cut).
type levelToll struct {
	level int
	most  int64
	toll  score
}

// optimal are the prices at the optimum of a programme, in units of the
// determinant of its basis, of which they are whole multiples.
func (p *programme) optimal(b *box) *prices {
	scale := p.fraction()
	if !(scale >= 1 && scale <= maxScale) {
		scale = maxScale
	}
	return p.prices(b, int64(scale), func(slack int, unit float64) (price score) {
		for level := range price {
			price[level] = whole(-p.goal[level][slack] * p.units[level] / unit * scale)
		}
		return price
	})
}

// refuting are prices at which a row that cannot be kept shows that nothing can
// keep all rows.
func (p *programme) refuting(b *box, row int) *prices {
	scale := max(1, min(p.fraction(), maxScale))
	return p.prices(b, 0, func(slack int, unit float64) score {
		return score{whole(p.rows[row][slack] / unit * scale)}
	})
}

// maxScale is the finest fraction; few bases need one above some hundred.
const maxScale = 1 << 20

func (p *programme) prices(b *box, scale int64, of func(slack int, unit float64) score) *prices {
	price := make([]score, len(b.needs))
	for i := range price {
		price[i] = notNegative(of(p.slack+i, 1))
	}
	var tolls []levelToll
	for _, c := range p.cuts {
		tolls = append(tolls, levelToll{c.level, c.most, notNegative(of(c.slack, p.units[c.level]))})
	}
	if !b.fits(scale, price, tolls) {
		scale, price, tolls = 1, make([]score, len(b.needs)), nil
	}
	return newPrices(b, scale, price, tolls)
}

// whole rounds; what is out of reach stays out of reach.
func whole(v float64) int64 { return int64(math.Round(min(max(v, -reach), reach))) }

// reach is more than any sum may become, with room in 64 bits.
const reach = 1 << 60

// fits tells whether all sums of these prices keep within 64 bits.
func (x *box) fits(scale int64, price []score, tolls []levelToll) bool {
	most := x.largest()
	for level := range most {
		sum := float64(scale) * most[level]
		for i, p := range price {
			sum += math.Abs(float64(p[level])) * float64(x.needs[i].wanted+len(x.boards)*x.needs[i].most)
		}
		for _, t := range tolls {
			sum += math.Abs(float64(t.toll[level])) * (most[t.level] + math.Abs(float64(t.most)))
		}
		if !(sum < reach) {
			return false
		}
	}
	return true
}

// largest is what a score can be at most, on each level, whatever its sign.
func (s *search) largest() (most [len(score{})]float64) {
	for level := range most {
		for _, n := range s.needs {
			most[level] += float64(n.values[n.wanted][level])
		}
		for _, k := range s.kinds {
			one := 0.0
			for _, o := range k.options {
				one = max(one, math.Abs(float64(o.score[level])))
			}
			most[level] += one * float64(len(k.gpus))
		}
	}
	return most
}

func notNegative(price score) score {
	if price.compare(score{}) < 0 {
		return score{}
	}
	return price
}

func newPrices(b *box, scale int64, price []score, tolls []levelToll) *prices {
	p := &prices{box: b, scale: scale, tolls: tolls, rest: make([]score, len(b.kinds)+1)}
	for _, t := range tolls {
		p.rest[len(b.kinds)] = p.rest[len(b.kinds)].plus(t.toll.times(t.most))
	}
	for _, k := range b.kinds {
		p.gain = append(p.gain, p.gains(k, price))
	}
	for k := len(b.kinds) - 1; k >= 0; k-- {
		p.rest[k] = p.rest[k+1].plus(p.most(k, b.open[k]).times(int64(b.left[k])))
	}
	for i := range b.needs {
		p.worth = append(p.worth, p.worths(i, price[i]))
	}
	return p
}

// less is a score in units of prices, less its tolls.
func (p *prices) less(s score) score {
	v := s.times(p.scale)
	for _, t := range p.tolls {
		v = v.plus(t.toll.times(-s[t.level]))
	}
	return v
}

func (p *prices) gains(k kind, price []score) []score {
	out := make([]score, len(k.options))
	for i, o := range k.options {
		out[i] = p.less(o.score)
		for j, n := range o.serves {
			out[i] = out[i].plus(price[j].times(int64(n)))
		}
	}
	return out
}

// worths: with u served, the most of value(u+y) - y*price over all y that end
// in the box.
func (p *prices) worths(i int, price score) []score {
	out := make([]score, p.box.high[i]+1)
	for u := p.box.high[i]; u >= 0; u-- {
		out[u] = p.less(p.box.needs[i].values[u])
		if u == p.box.high[i] {
			continue
		}
		if more := out[u+1].plus(price.times(-1)); u < p.box.low[i] || more.compare(out[u]) > 0 {
			out[u] = more
		}
	}
	return out
}

// at is what a GPU gains by an option, most the most by any of some.
func (p *prices) at(kind, option int) score { return p.gain[kind][option] }

func (p *prices) most(kind int, options []int) (best score) {
	for i, o := range options {
		if v := p.gain[kind][o]; i == 0 || v.compare(best) > 0 {
			best = v
		}
	}
	return best
}

// base is the worth of what is served.
func (p *prices) base(served uint64) (b score) {
	for i := range p.worth {
		b = b.plus(p.worth[i][p.box.number(served, i)])
	}
	return b
}

// change of the base when more is served.
func (p *prices) change(from, to uint64) (d score) {
	for i, worth := range p.worth {
		a, b := p.box.number(from, i), p.box.number(to, i)
		if a != b {
			d = d.plus(worth[b]).plus(worth[a].times(-1))
		}
	}
	return d
}

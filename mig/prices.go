package mig

// prices bound from above what a state can become: if every further instance
// that serves could be bought and sold at a price, each GPU would choose for
// itself (Lagrangian relaxation). Any prices that are not negative give a true
// bound; those of the linear programme (simplex.go) give the best one. Prices
// are scores, compared like them; all is scaled to stay in whole numbers.
type prices struct {
	search *search
	// gain is, for each kind and option, what a GPU gains by it at prices.
	gain [][]score
	// rest is the most that the GPUs of the kinds from each on can gain.
	rest []score
	// worth is, for each need and number served, the value of these and the most
	// that serving more can gain over its price.
	worth [][]score
	// taken is, for each kind and option, how many GPUs the linear programme gives it.
	taken [][]int
	tolls []levelToll
}

// scale is divisible by what prices usually are fractions of.
const scale = 5040

func newPrices(s *search, lp *programme) *prices {
	p := &prices{search: s, rest: make([]score, len(s.kinds)+1), taken: lp.taken(s)}
	price := make([]score, len(s.needs))
	for i := range price {
		price[i] = lp.price(lp.slack + i)
	}
	for _, c := range lp.cuts {
		toll := lp.price(c.slack)
		p.tolls = append(p.tolls, levelToll{c.level, toll})
		p.rest[len(s.kinds)] = p.rest[len(s.kinds)].plus(toll.times(c.most))
	}
	for _, k := range s.kinds {
		p.gain = append(p.gain, p.gains(k, price))
	}
	for k := len(s.kinds) - 1; k >= 0; k-- {
		p.rest[k] = p.rest[k+1].plus(highest(p.gain[k]).times(int64(len(s.kinds[k].gpus))))
	}
	for i, n := range s.needs {
		p.worth = append(p.worth, p.worths(n, price[i]))
	}
	return p
}

// levelToll is what each point of one level of the score costs: the price of a
// cut (programme.cut).
type levelToll struct {
	level int
	toll  score
}

// less is a score in units of prices, less its tolls.
func (p *prices) less(s score) score {
	v := s.times(scale)
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

func highest(all []score) (best score) {
	for i, v := range all {
		if i == 0 || v.compare(best) > 0 {
			best = v
		}
	}
	return best
}

// worths: with u served, the most of value(u+y) - y*price over all y.
func (p *prices) worths(n need, price score) []score {
	out := make([]score, n.wanted+1)
	for u := n.wanted; u >= 0; u-- {
		out[u] = p.less(n.values[u])
		if u == n.wanted {
			continue
		}
		if more := out[u+1].plus(price.times(-1)); more.compare(out[u]) > 0 {
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
		b = b.plus(p.worth[i][p.search.number(served, i)])
	}
	return b
}

// change of the base when more is served.
func (p *prices) change(from, to uint64) (d score) {
	for i, worth := range p.worth {
		a, b := p.search.number(from, i), p.search.number(to, i)
		if a != b {
			d = d.plus(worth[b]).plus(worth[a].times(-1))
		}
	}
	return d
}

package mig

// prices bound from above what a state can become: if every further instance
// that serves could be bought and sold at a price, each GPU would choose for
// itself (Lagrangian relaxation). Any prices that are not negative give a true
// bound; those of the linear programme (simplex.go) give the best one. Prices
// are scores, compared like them; all is scaled to stay in whole numbers.
type prices struct {
	search *search
	// rest is the most that the GPUs from each on can gain.
	rest []score
	// gain is, for each need and number served, the most that serving more can
	// gain over its price.
	gain [][]score
}

// scale is divisible by what prices usually are fractions of.
const scale = 5040

func newPrices(s *search) *prices {
	p := &prices{search: s, rest: make([]score, len(s.boards)+1), gain: make([][]score, len(s.needs))}
	price := solvePrices(s)
	for k := range price {
		if price[k].compare(score{}) < 0 {
			price[k] = score{}
		}
	}
	for g := len(s.boards) - 1; g >= 0; g-- {
		p.rest[g] = p.rest[g+1].plus(bestAt(s.options[g], price))
	}
	for k, n := range s.needs {
		p.gain[k] = gains(n, price[k])
	}
	return p
}

// bestAt is the most that a GPU gains at prices.
func bestAt(options []option, price []score) (best score) {
	for i, o := range options {
		v := o.score.times(scale)
		for k, n := range o.serves {
			v = v.plus(price[k].times(int64(n)))
		}
		if i == 0 || v.compare(best) > 0 {
			best = v
		}
	}
	return best
}

// gains: with u served, the most of value(u+y) - y*price over all y.
func gains(n need, price score) []score {
	out := make([]score, n.wanted+1)
	for u := n.wanted; u >= 0; u-- {
		out[u] = n.values[u].times(scale)
		if u == n.wanted {
			continue
		}
		if more := out[u+1].plus(price.times(-1)); more.compare(out[u]) > 0 {
			out[u] = more
		}
	}
	return out
}

// bound of a state before the GPUs from g on are chosen.
func (p *prices) bound(g int, t state) score {
	b := t.score.times(scale).plus(p.rest[g])
	for k, n := range p.search.needs {
		b = b.plus(p.gain[k][t.served/p.search.strides[k]%uint64(n.wanted+1)])
	}
	return b
}

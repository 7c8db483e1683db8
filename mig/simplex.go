package mig

import "math"

// The linear programme of a node: how much of each option each kind of GPU
// takes (kinds are GPUs in equal state), and how much of each group of requests
// of equal value is served:
//
//	for each need    sum of its groups served - sum of what options serve <= 0
//	for each group   served <= its size
//	for each kind    sum of its options = its GPUs
//
// solved by the simplex method with a score for each column as its objective,
// compared lexicographically. Its result is only prices: the bound made of
// them holds whatever rounding did.
type programme struct {
	rows [][]float64 // constraints; the last column is the right-hand side
	goal [len(score{})][]float64
	// slack is the first of the needs' slack columns.
	slack int
	// basis is the column that each row owns; -1 as long as it owns none.
	basis []int
	cuts  []cutRow
}

const (
	tiny      = 1e-7
	maxPivots = 2000
)

// cutRow is a row that holds one level of the score at most at a whole number.
type cutRow struct {
	level, slack int
	most         int64
}

// optimise pivots to the optimum from a solution that keeps all rows.
func (p *programme) optimise() {
	for n := range maxPivots {
		column := p.entering(n > maxPivots/2)
		if column < 0 {
			return
		}
		row := p.leaving(column)
		if row < 0 {
			return
		}
		p.pivot(row, column)
	}
}

// optimum is one level of the score at the optimum.
func (p *programme) optimum(level int) float64 {
	g := p.goal[level]
	return -g[len(g)-1]
}

// cut holds a level of the score below its fractional optimum, since scores are
// whole numbers, and goes to the new optimum by the dual simplex method. The
// row is the goal's own in terms of the present basis.
func (p *programme) cut(level int, most int64) {
	row := append([]float64(nil), p.goal[level]...)
	row[len(row)-1] += float64(most)
	slack := len(row) - 1
	p.cuts = append(p.cuts, cutRow{level, slack, most})
	p.rows, p.basis = append(p.rows, row), append(p.basis, slack)
	for i, r := range p.rows {
		p.rows[i] = insertColumn(r, i == len(p.rows)-1)
	}
	for i, g := range p.goal {
		p.goal[i] = insertColumn(g, false)
	}
	for range maxPivots {
		row := p.broken()
		if row < 0 {
			break
		}
		column := p.repairing(row)
		if column < 0 {
			break
		}
		p.pivot(row, column)
	}
	p.optimise()
}

// insertColumn puts a column before the right-hand side.
func insertColumn(r []float64, own bool) []float64 {
	last := r[len(r)-1]
	r[len(r)-1] = 0
	if own {
		r[len(r)-1] = 1
	}
	return append(r, last)
}

// broken is the row that is violated most; -1 if none is.
func (p *programme) broken() int {
	worst, row := -tiny, -1
	for i, r := range p.rows {
		if v := r[len(r)-1]; v < worst {
			worst, row = v, i
		}
	}
	return row
}

// repairing is the column that mends a row at the least loss.
func (p *programme) repairing(row int) int {
	best, least := -1, [len(score{})]float64{}
	r := p.rows[row]
	for j := range len(r) - 1 {
		if r[j] > -tiny {
			continue
		}
		loss := [len(score{})]float64{}
		for level := range loss {
			loss[level] = p.goal[level][j] / r[j]
		}
		if best < 0 || compareGains(loss, least) < 0 {
			best, least = j, loss
		}
	}
	return best
}

// price is what a slack column tells of its row, times scale.
func (p *programme) price(slack int) (price score) {
	for level := range price {
		price[level] = int64(math.Round(-p.goal[level][slack] * scale))
	}
	if price.compare(score{}) < 0 {
		return score{}
	}
	return price
}

// taken rounds the solution down.
func (p *programme) taken(s *search) (taken [][]int) {
	first := len(groups(s.needs))
	for _, k := range s.kinds {
		n := make([]int, len(k.options))
		for row, column := range p.basis {
			if o := column - first; o >= 0 && o < len(n) {
				n[o] = int(p.rows[row][len(p.rows[row])-1] + tiny)
			}
		}
		taken, first = append(taken, n), first+len(n)
	}
	return taken
}

// group is a run of requests of one value.
type group struct {
	need, size int
	value      score
}

func groups(needs []need) (gs []group) {
	for k, n := range needs {
		for i := 1; i <= n.wanted; i++ {
			v := n.values[i].plus(n.values[i-1].times(-1))
			if last := len(gs) - 1; last >= 0 && gs[last].need == k && gs[last].value == v {
				gs[last].size++
				continue
			}
			gs = append(gs, group{k, 1, v})
		}
	}
	return gs
}

// newProgramme has as its first solution that nothing is served and each kind
// takes its first option.
func newProgramme(s *search) *programme {
	gs, ks := groups(s.needs), s.kinds
	columns := len(gs)
	for _, k := range ks {
		columns += len(k.options)
	}
	p := &programme{slack: columns}
	width := columns + len(s.needs) + len(gs) + 1
	for range len(s.needs) + len(gs) + len(ks) {
		p.rows, p.basis = append(p.rows, make([]float64, width)), append(p.basis, -1)
	}
	for i := range p.goal {
		p.goal[i] = make([]float64, width)
	}
	for i := range len(s.needs) + len(gs) {
		p.rows[i][columns+i], p.basis[i] = 1, columns+i
	}
	for i, g := range gs {
		p.rows[g.need][i] = 1
		p.rows[len(s.needs)+i][i] = 1
		p.rows[len(s.needs)+i][width-1] = float64(g.size)
		p.value(i, g.value)
	}
	column := len(gs)
	for i, k := range ks {
		row := len(s.needs) + len(gs) + i
		p.rows[row][width-1] = float64(len(k.gpus))
		first := column
		for _, o := range k.options {
			p.rows[row][column] = 1
			for n, served := range o.serves {
				p.rows[n][column] = -float64(served)
			}
			p.value(column, o.score)
			column++
		}
		p.pivot(row, first)
	}
	return p
}

func (p *programme) value(column int, v score) {
	for level := range v {
		p.goal[level][column] = float64(v[level])
	}
}

// entering is the column that gains most, or, against cycles, the first that
// gains (Bland); -1 at the optimum.
func (p *programme) entering(first bool) int {
	best, bestGain := -1, [len(score{})]float64{}
	for j := range len(p.goal[0]) - 1 {
		gain := [len(score{})]float64{}
		for level := range gain {
			gain[level] = p.goal[level][j]
		}
		if compareGains(gain, bestGain) > 0 {
			best, bestGain = j, gain
			if first {
				return best
			}
		}
	}
	return best
}

func compareGains(a, b [len(score{})]float64) int {
	for i := range a {
		switch d := a[i] - b[i]; {
		case d > tiny*(1+math.Abs(b[i])):
			return 1
		case d < -tiny*(1+math.Abs(b[i])):
			return -1
		}
	}
	return 0
}

// leaving is the row that limits the column first; -1 if none does.
func (p *programme) leaving(column int) int {
	best, least := -1, 0.0
	for i, r := range p.rows {
		if r[column] <= tiny {
			continue
		}
		if ratio := r[len(r)-1] / r[column]; best < 0 || ratio < least-tiny {
			best, least = i, ratio
		}
	}
	return best
}

// pivot makes the column the row's own.
func (p *programme) pivot(row, column int) {
	r := p.rows[row]
	p.basis[row] = column
	by := 1 / r[column]
	for j := range r {
		r[j] *= by
	}
	for i, other := range p.rows {
		if i != row {
			eliminate(other, r, column)
		}
	}
	for level := range p.goal {
		eliminate(p.goal[level], r, column)
	}
}

func eliminate(from, by []float64, column int) {
	f := from[column]
	if f == 0 {
		return
	}
	for j := range from {
		from[j] -= f * by[j]
	}
	from[column] = 0
}

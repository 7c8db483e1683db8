package mig

import (
	"math"
	"math/bits"
	"slices"
)

// The linear programme of a node: how much of each option each kind of GPU
// takes (kinds are GPUs in equal state), and how much of each group of requests
// of equal value is served:
//
//	for each need    sum of its groups served - sum of what options serve <= 0
//	for each group   served <= its size
//	for each kind    sum of its options = its GPUs
//
// solved by the simplex method with a score for each column as its objective,
// compared lexicographically. Its result is only prices, and where to split:
// the bounds made of them (prices.go) hold whatever rounding did.
type programme struct {
	rows [][]float64 // constraints; the last column is the right-hand side
	goal [len(score{})][]float64
	// groups are what the first columns stand for.
	groups []group
	// slack is the first of the needs' slack columns.
	slack int
	// basis is the column that each row owns; -1 as long as it owns none.
	basis []int
	// determinant of the basis: all that the solution tells is whole multiples
	// of its inverse (Cramer's rule).
	determinant float64
	cuts        []cutRow
	// units are what each level of the score is counted in, so that rounding
	// weighs the same on all: powers of two.
	units [len(score{})]float64
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

// cut holds a level of the score at most at a whole number below the optimum.
// The row is the goal's own in terms of the present basis.
func (p *programme) cut(level int, most int64) (refuted int) {
	row := slices.Clone(p.goal[level])
	row[len(row)-1] += float64(most) / p.units[level]
	p.cuts = append(p.cuts, cutRow{level, len(row) - 1, most})
	return p.add(row)
}

// hold keeps the sum of some columns at most, or at least, at a whole number.
func (p *programme) hold(columns []int, number int, least bool) (refuted int) {
	sign := 1.0
	if least {
		sign = -1
	}
	row := make([]float64, len(p.goal[0]))
	row[len(row)-1] = sign * float64(number)
	for _, c := range columns {
		row[c] = sign
	}
	for i, r := range p.rows {
		eliminate(row, r, p.basis[i])
	}
	return p.add(row)
}

// add takes a row, in terms of the present basis, and goes to the new optimum
// by the dual simplex method. It returns the number of a row that cannot be
// kept, or -1.
func (p *programme) add(row []float64) (refuted int) {
	slack := len(row) - 1
	p.rows, p.basis = append(p.rows, row), append(p.basis, slack)
	for i, r := range p.rows {
		p.rows[i] = insertColumn(r, i == len(p.rows)-1)
	}
	for i, g := range p.goal {
		p.goal[i] = insertColumn(g, false)
	}
	for range maxPivots {
		broken := p.broken()
		if broken < 0 {
			break
		}
		column := p.repairing(broken)
		if column < 0 {
			return broken
		}
		p.pivot(broken, column)
	}
	p.optimise()
	return -1
}

// clone shares nothing that pivots change, and leaves room for more rows.
func (p *programme) clone() *programme {
	q := *p
	q.rows, q.basis, q.cuts = slices.Clone(p.rows), slices.Clone(p.basis), slices.Clone(p.cuts)
	for i, r := range q.rows {
		q.rows[i] = append(make([]float64, 0, len(r)+8), r...)
	}
	for i, g := range q.goal {
		q.goal[i] = append(make([]float64, 0, len(g)+8), g...)
	}
	return &q
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

// serving are the columns of the groups of a need.
func (p *programme) serving(need int) (columns []int) {
	for c, g := range p.groups {
		if g.need == need {
			columns = append(columns, c)
		}
	}
	return columns
}

// taking is the column of an option.
func (p *programme) taking(s *search, kind, option int) []int {
	c := len(p.groups) + option
	for _, k := range s.kinds[:kind] {
		c += len(k.options)
	}
	return []int{c}
}

// unevenServed is the need whose number served is least whole in the solution,
// and the whole number below; -1 if all are whole.
func (p *programme) unevenServed(s *search) (need, n int) {
	served := make([]float64, len(s.needs))
	for row, column := range p.basis {
		if column < len(p.groups) {
			served[p.groups[column].need] += p.rows[row][len(p.rows[row])-1]
		}
	}
	need, most := -1, uneven
	for i, v := range served {
		if off := math.Abs(v - math.Round(v)); off > most && s.needs[i].wanted > 0 {
			need, n, most = i, int(v), off
		}
	}
	return need, n
}

// unevenTaken is the same for the GPUs of a kind that take an option.
func (p *programme) unevenTaken(s *search) (kind, option, n int) {
	first := len(p.groups)
	kind, most := -1, uneven
	for k := range s.kinds {
		for row, column := range p.basis {
			o := column - first
			v := p.rows[row][len(p.rows[row])-1]
			if off := math.Abs(v - math.Round(v)); o >= 0 && o < len(s.kinds[k].options) && off > most {
				kind, option, n, most = k, o, int(v), off
			}
		}
		first += len(s.kinds[k].options)
	}
	return kind, option, n
}

// uneven is more than what rounding makes of a whole number.
const uneven = 1e-5

// taken rounds the solution down.
func (p *programme) taken(s *search) (taken [][]int) {
	first := len(p.groups)
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
	p := &programme{groups: gs, slack: columns, determinant: 1, units: unitsOf(s, gs)}
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
		p.goal[level][column] = float64(v[level]) / p.units[level]
	}
}

// unitsOf are above all values of single requests and options.
func unitsOf(s *search, gs []group) (units [len(score{})]float64) {
	for level := range units {
		most := int64(0)
		for _, g := range gs {
			most = max(most, g.value[level], -g.value[level])
		}
		for _, k := range s.kinds {
			for _, o := range k.options {
				most = max(most, o.score[level], -o.score[level])
			}
		}
		units[level] = float64(int64(1) << bits.Len64(uint64(most)))
	}
	return units
}

// fraction is what the solution's prices are whole multiples of one over: the
// determinant of the basis. A cut is counted in units where its slack is not in
// the basis.
func (p *programme) fraction() float64 {
	d := math.Abs(p.determinant)
	for _, c := range p.cuts {
		if !slices.Contains(p.basis, c.slack) {
			d *= p.units[c.level]
		}
	}
	return math.Round(d)
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
	p.determinant *= r[column]
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

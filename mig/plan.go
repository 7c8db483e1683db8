package mig

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Demand is work that waits for MIG devices of one profile.
type Demand struct {
	// Profile is named as ProfileNamed reads it, the same way for all chips.
	Profile string `json:"profile"`
	Count   int    `json:"count"`
	// Weight is the value of serving one; 0 means 1.
	Weight int64 `json:"weight,omitempty"`
	// Age is how long each has waited; among equal weights the older is served.
	Age time.Duration `json:"age,omitempty"`
}

// Bounds of what one plan can be asked for.
const (
	maxWeight = 1_000_000_000
	maxAge    = 100_000 * time.Hour
)

// Plan is the best layouts and how to get there.
type Plan struct {
	GPUs []GPUPlan `json:"gpus"`
	// Steps in the order in which they can be done.
	Steps []Step `json:"steps"`
	// Served tells of each profile asked for.
	Served []Served `json:"served"`
	// Choice is the number of the alternative that was planned, from 0.
	Choice int `json:"choice,omitempty"`
	// Proven says that no plan serves more, disturbs less, strands less or, among
	// equals, leaves more possible. Many profiles on more than 8 GPUs may end without.
	Proven bool `json:"proven"`
}

// GPUPlan is one GPU's part.
type GPUPlan struct {
	GPU   gpu.UUID `json:"gpu"`
	Index int      `json:"index"`
	// Before and After are layouts as Format prints them.
	Before string `json:"before"`
	After  string `json:"after"`
	// Layout is After as places.
	Layout gpu.Layout `json:"layout"`
	// Kept, Created and Destroyed are places as FormatPlace prints them.
	Kept      []string `json:"kept,omitempty"`
	Created   []string `json:"created,omitempty"`
	Destroyed []string `json:"destroyed,omitempty"`
	// Pinned tells why an instance must stay: "1g.5gb@6 is used by slot1_2".
	Pinned []string `json:"pinned,omitempty"`
	// Flexibility is the number of maximal layouts that After can still become by adding.
	Flexibility int `json:"flexibility"`
	// Cost is After's, and CostBefore Before's.
	Cost       Cost `json:"cost"`
	CostBefore Cost `json:"cost_before"`
	// Warnings are sentences for the operator.
	Warnings []string `json:"warnings,omitempty"`
}

// Served is what the plan gives of one profile asked for.
type Served struct {
	Profile string `json:"profile"`
	Wanted  int    `json:"wanted"`
	Served  int    `json:"served"`
	// Why not more; empty if all is served.
	Why string `json:"why,omitempty"`
	// Waits is the cheapest way to one more, if only busy or foreign instances bar it.
	Waits *Wait `json:"waits,omitempty"`
}

// Wait is a place that becomes free when some instances do.
type Wait struct {
	GPU gpu.UUID `json:"gpu"`
	// Place is where the instance would be created.
	Place string `json:"place"`
	// For are the instances that bar it, with who uses them.
	For []string `json:"for"`
	// Reserve are idle instances in the way: keep jobs off them while waiting.
	Reserve []string `json:"reserve,omitempty"`
}

// score ranks layouts, the first difference decides: value of the demand
// served, its age (or number), instances not destroyed, not created, capacity not
// stranded, maximal layouts still possible. More is better in each.
type score [6]int64

func (s score) plus(t score) score {
	for i := range s {
		s[i] += t[i]
	}
	return s
}

func (s score) compare(t score) int {
	for i := range s {
		if s[i] != t[i] {
			return cmp.Compare(s[i], t[i])
		}
	}
	return 0
}

// board is one GPU with its instances as sets of places.
type board struct {
	gpu    gpu.MIGGPU
	ls     *Layouts
	now    uint64
	pinned uint64
}

func newBoard(g gpu.MIGGPU, ls *Layouts) (board, error) {
	b := board{gpu: g, ls: ls}
	for _, in := range g.Instances {
		one, ok := ls.set(gpu.Layout{in.Place})
		if !ok || b.now&one != 0 {
			return board{}, fmt.Errorf("%s: %s is none of its driver's placements, or is there twice; read the GPU again",
				g.UUID, g.Chip.FormatPlace(in.Place))
		}
		b.now |= one
		if in.Pinned() {
			b.pinned |= one
		}
	}
	if _, legal := ls.index[b.now]; !legal {
		return board{}, fmt.Errorf("%s: %s: %w; read the GPU again", g.UUID, g.Chip.Format(g.Layout()),
			Legal(g.Chip, g.Layout()))
	}
	return b, nil
}

// local is the part of the score that does not depend on what is asked for.
func (b board) local(e entry) score {
	return score{2: -count(b.now &^ e.set), 3: -count(e.set &^ b.now), 4: -int64(e.waste), 5: int64(e.flexibility)}
}

func count(set uint64) int64 { return int64(bits.OnesCount64(set)) }

// candidates yields the layouts that keep every pinned instance, in order.
func (b board) candidates(yield func(int, entry) bool) {
	for i, e := range b.ls.all {
		if e.set&b.pinned == b.pinned && !yield(i, e) {
			return
		}
	}
}

// result describes the change to a layout.
func (b board) result(set uint64) GPUPlan {
	c, after := b.ls.chip, b.ls.layout(set)
	p := GPUPlan{
		GPU: b.gpu.UUID, Index: b.gpu.Index,
		Before: c.Format(b.ls.layout(b.now)), After: c.Format(after), Layout: after,
		Kept: b.names(set & b.now), Created: b.names(set &^ b.now), Destroyed: b.names(b.now &^ set),
		Flexibility: b.ls.all[b.ls.index[set]].flexibility,
		Cost:        CostOf(c, after), CostBefore: CostOf(c, b.ls.layout(b.now)),
		Warnings: Warnings(c, after),
	}
	for _, in := range b.gpu.Instances {
		if in.Pinned() {
			p.Pinned = append(p.Pinned, b.why(in))
		}
	}
	return p
}

func (b board) names(set uint64) []string {
	if set == 0 {
		return nil
	}
	return strings.Split(b.ls.chip.Format(b.ls.layout(set)), ",")
}

// why tells in a clause what pins an instance.
func (b board) why(in gpu.Instance) string {
	name := b.ls.chip.FormatPlace(in.Place)
	var users []string
	for _, h := range in.Holders {
		if !h.Ours {
			users = append(users, h.String())
		}
	}
	if len(users) > 0 {
		return name + " is used by " + strings.Join(users, " and ")
	}
	return name + " was not made by gpuslot"
}

// steps lead to the layout: destroys, then creates.
func (b board) steps(set uint64) []Step {
	var steps []Step
	for _, p := range b.ls.layout(b.now &^ set) {
		i := slices.IndexFunc(b.gpu.Instances, func(in gpu.Instance) bool { return in.Place == p })
		s := b.step(Destroy, p)
		s.Instance = b.gpu.Instances[i].ID
		steps = append(steps, s)
	}
	for _, p := range b.ls.layout(set &^ b.now) {
		steps = append(steps, b.step(Create, p))
	}
	return steps
}

func (b board) step(v Verb, at gpu.Place) Step {
	p, _ := b.ls.chip.Profile(at.Profile)
	return Step{Verb: v, GPU: b.gpu.UUID, Place: at, Size: p.Size, Name: p.Name}
}

// Catalogue enumerates each chip's layouts once. It serves one goroutine at a
// time; the zero value is ready. Chips that it has seen may not change.
type Catalogue struct{ known []*Layouts }

// Layouts are those of the chip.
func (c *Catalogue) Layouts(chip gpu.Chip) (*Layouts, error) {
	for _, ls := range c.known {
		if reflect.DeepEqual(ls.chip, chip) {
			return ls, nil
		}
	}
	ls, err := Enumerate(chip)
	if err != nil {
		return nil, err
	}
	c.known = append(c.known, ls)
	return ls, nil
}

func (c *Catalogue) board(g gpu.MIGGPU) (board, error) {
	ls, err := c.Layouts(g.Chip)
	if err != nil {
		return board{}, err
	}
	return newBoard(g, ls)
}

// boards are those of all GPUs, or everything that is wrong with them.
func (c *Catalogue) boards(gpus []gpu.MIGGPU) ([]board, error) {
	var bs []board
	var errs []error
	for _, g := range gpus {
		b, err := c.board(g)
		bs, errs = append(bs, b), append(errs, err)
	}
	return bs, errors.Join(errs...)
}

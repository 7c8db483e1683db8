package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// kind is what a slot is.
type kind int8

// A GPU or MIG device that several jobs share; a MIG device for one job at a time;
// all whole GPUs of a node.
const (
	shared kind = iota
	device
	whole
)

// shape is a kind of slot: slots that differ only in their node, and perhaps by a
// CPU.
type shape struct {
	group int
	kind  kind
	hw    hardware
	// gpu is the plan of one of them; of whole GPUs the first.
	gpu plan.GPU
	// largest is the largest budget of a job on one GPU.
	largest gpu.MiB
	request plan.RequestVRAM
	// fallback: a job without request_vram gets a whole GPU.
	fallback bool
	// share is the largest budget of a shared GPU of the same node.
	share gpu.MiB
	power Power
	// sizes are the different ones of its slots.
	sizes []amount
	slots []int32
	free  tree
}

// slotPlan is one slot of a planned node.
type slotPlan struct {
	shape int
	size  amount
	// gpu is the number of its GPU on the node, -1 for whole ones; place that of a
	// MIG device.
	gpu   int
	uuid  gpu.UUID
	place string
	// off: the place has no MIG device at the beginning.
	off bool
}

// nodePlan is a node of a group, as agent/plan builds it.
type nodePlan struct {
	config config.Config
	plan   plan.Plan
	slots  []slotPlan
	gpus   int
	vram   gpu.MiB
	// divided are the GPUs of its plan's MIG.
	divided []divided
}

// divided is a GPU with MIG devices.
type divided struct {
	plan.MIGGPU
	chip mig.Chip
	// narrow is the chip for the policy; bounded: it must be told the places besides.
	narrow  mig.Chip
	bounded bool
	// first is the layout at the beginning, the preferred one; places are those of all.
	first, places mig.Layout
	// slots are those of the places, by their number on the node.
	slots []int
}

// maxSlots bounds the slots of a pool.
const maxSlots = 1 << 22

// nodeOf plans one node of a group and sorts its GPUs into shapes.
func (w *world) nodeOf(number int, g Group, p Policy) (nodePlan, error) {
	text := cmp.Or(p.Config, g.Config)
	cfg, err := config.Parse("gpuslot.toml of "+g.Name, []byte(text))
	if err != nil {
		return nodePlan{}, err
	}
	built, err := plan.Build(cfg, g.Inventory)
	if err != nil {
		return nodePlan{}, fmt.Errorf("nodes %s: %w", g.Name, err)
	}
	if built.Observe {
		divide(&built)
	}
	n := nodePlan{config: cfg, plan: built, gpus: len(g.Inventory.GPUs)}
	for _, one := range g.Inventory.GPUs {
		n.vram += one.Memory
	}
	if err := n.layOut(g.Inventory); err != nil {
		return nodePlan{}, fmt.Errorf("nodes %s: %w", g.Name, err)
	}
	inv := g.Inventory
	inv.GPUs = slices.Clone(inv.GPUs)
	inv.Sort()
	numberOf := func(u gpu.UUID) int {
		return slices.IndexFunc(inv.GPUs, func(o gpu.GPU) bool { return o.UUID == u })
	}
	var wholes []plan.GPU
	for _, one := range built.GPUs {
		if entire(one) {
			wholes = append(wholes, one)
			continue
		}
		if err := w.addSlot(&n, number, g, p, one, numberOf(one.Physical())); err != nil {
			return nodePlan{}, err
		}
	}
	w.addWhole(&n, number, g, wholes)
	n.findPlaces()
	return n, nil
}

// divide gives the GPUs of an observed node its CPUs and memory, of which its plan says
// nothing: HTCondor has them as the site has it.
func divide(p *plan.Plan) {
	n := len(p.GPUs)
	for i := range p.GPUs {
		p.GPUs[i].Resources = plan.Resources{CPUs: p.Host.CPUs / n, Memory: p.Host.Memory / gpu.MiB(n)}
	}
}

// entire tells whether jobs get whole GPUs: also where they are only observed.
func entire(one plan.GPU) bool { return !one.Shared() && !one.MIGDevice() }

// addSlot adds a shared GPU or a MIG device.
func (w *world) addSlot(n *nodePlan, number int, g Group, p Policy, one plan.GPU, at int) error {
	s := shape{group: number, kind: shared, gpu: one, largest: one.LargestRequest, power: g.Power}
	s.hw = hardware{speed: cmp.Or(g.Speed, 1), sms: 1, bandwidth: 1, slicing: p.Slicing && !one.MIGDevice()}
	slot := slotPlan{gpu: at, uuid: one.Physical(), place: one.Place, off: !n.begins(one),
		size: amount{int32(one.Shares), int32(one.Pool), int32(one.Resources.CPUs), int32(one.Resources.Memory)}}
	if one.MIGDevice() {
		sms, bandwidth, err := n.partsOf(one)
		if err != nil {
			return fmt.Errorf("nodes %s: %w", g.Name, err)
		}
		s.hw.device, s.hw.sms, s.hw.bandwidth = true, sms, bandwidth
		slot.place = cmp.Or(slot.place, one.Profile)
	}
	if one.Alone() {
		s.kind = device
	}
	slot.shape = w.shapeOf(n, s, slot.size)
	n.slots = append(n.slots, slot)
	return nil
}

// addWhole adds the slot of all whole GPUs of the node.
func (w *world) addWhole(n *nodePlan, number int, g Group, all []plan.GPU) {
	if len(all) == 0 {
		return
	}
	size, least := amount{}, all[0].Pool
	for _, one := range all {
		least = min(least, one.Pool)
		size = size.plus(amount{1, 0, int32(one.Resources.CPUs), int32(one.Resources.Memory)})
	}
	size.vram = size.gpus * int32(least)
	s := shape{group: number, kind: whole, gpu: all[0], largest: least, power: g.Power, hw: hardware{speed: cmp.Or(g.Speed, 1), sms: 1, bandwidth: 1}}
	for _, one := range n.plan.GPUs {
		if !entire(one) {
			s.share = max(s.share, one.LargestRequest)
		}
	}
	n.slots = append(n.slots, slotPlan{gpu: -1, size: size, shape: w.shapeOf(n, s, size)})
}

// shapeOf finds or adds the shape.
func (w *world) shapeOf(n *nodePlan, s shape, size amount) int {
	s.request = n.plan.RequestVRAM
	s.fallback = s.request.WithoutRequest == config.WithoutRequestWhole
	i := slices.IndexFunc(w.shapes, func(o *shape) bool {
		return o.group == s.group && o.kind == s.kind && o.hw == s.hw && o.largest == s.largest && o.gpu.Shares == s.gpu.Shares && o.gpu.Pool == s.gpu.Pool && o.gpu.Profile == s.gpu.Profile
	})
	if i < 0 {
		i = len(w.shapes)
		w.shapes = append(w.shapes, &s)
	}
	if o := w.shapes[i]; !slices.Contains(o.sizes, size) {
		o.sizes = append(o.sizes, size)
	}
	return i
}

// partsOf is what a MIG device has of its GPU.
func (n *nodePlan) partsOf(one plan.GPU) (sms, bandwidth float64, err error) {
	i := slices.IndexFunc(n.divided, func(d divided) bool { return d.UUID == one.Parent })
	if i < 0 {
		return 0, 0, fmt.Errorf("%s is no GPU of the inventory", one.Parent)
	}
	p, err := n.divided[i].chip.ProfileNamed(one.Profile)
	if err != nil {
		return 0, 0, err
	}
	sms, bandwidth = partsOf(n.divided[i].chip, p)
	return sms, bandwidth, nil
}

// partsOf is what an instance of a profile has of the chip's multiprocessors and memory
// bandwidth. Where its SMs are not published they count as its slices.
func partsOf(chip mig.Chip, p mig.Profile) (sms, bandwidth float64) {
	sms = float64(p.Slices) / float64(chip.Slices())
	if p.Multiprocessors > 0 && chip.Multiprocessors > 0 {
		sms = float64(p.Multiprocessors) / float64(chip.Multiprocessors)
	}
	return sms, float64(p.Size) / float64(chip.Units())
}

// need is what a job of a class takes of a slot of the shape; not ok if it can
// never have one. The rules are those of START (condor.sharedType, wholeType).
func (s *shape) need(k request) (a amount, ok bool) {
	vram := gpu.MiB(k.vram)
	a = amount{int32(k.gpus), 0, int32(k.cpus), int32(k.memory)}
	switch {
	case s.kind == whole:
		wants := s.share == 0 || k.gpus > 1 || vram > s.share || vram == 0 && s.fallback
		a.vram = a.gpus * int32(s.largest)
		ok = wants && vram <= s.largest*gpu.MiB(k.gpus)
	case k.gpus != 1:
		return a, false
	case vram == 0 && s.fallback:
		return a, false
	case s.kind == device:
		a.vram = int32(s.gpu.Pool)
		ok = vram <= s.largest
	default:
		budget := s.request.Budget(vram)
		if vram == 0 {
			budget = s.gpu.DefaultRequest
		}
		a.vram = int32(budget)
		ok = budget <= s.largest
	}
	return a, ok && slices.ContainsFunc(s.sizes, func(size amount) bool { return size.holds(a) })
}

// limit is the part of its GPU's multiprocessors that a job with this budget may use.
func (s *shape) limit(a amount) float64 {
	if s.kind != shared || s.hw.slicing {
		return s.hw.sms
	}
	percent, _ := s.gpu.ThreadPercentage(gpu.MiB(a.vram))
	return s.hw.sms * percent / 100
}

// layOut finds the layouts of the plan's MIG GPUs.
func (n *nodePlan) layOut(inv gpu.Inventory) error {
	known := map[string]mig.Chip{}
	for _, m := range n.plan.MIG {
		parent, _ := inv.GPU(m.UUID)
		chip, seen := known[parent.Name]
		if !seen {
			var err error
			if chip, err = mig.ModelOf(parent, 0); err != nil {
				return err
			}
			known[parent.Name] = chip
		}
		d := divided{MIGGPU: m, chip: chip}
		for i, text := range m.Placed {
			w, err := chip.ParseWant(text)
			if err != nil {
				return err
			}
			if i == 0 {
				d.first = mig.NewLayout(w.Placed...)
			}
			d.places = append(d.places, w.Placed...)
		}
		slices.SortFunc(d.places, func(a, b mig.Place) int {
			return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Start, b.Start))
		})
		d.places = slices.Compact(d.places)
		n.divided = append(n.divided, d)
	}
	return nil
}

// begins tells whether a slot of the plan can be used from the beginning: GPUs,
// and the MIG devices of the preferred layout.
func (n *nodePlan) begins(one plan.GPU) bool {
	if one.Place == "" {
		return true
	}
	for _, d := range n.divided {
		if d.UUID == one.Parent {
			return slices.ContainsFunc(d.first, func(p mig.Place) bool { return d.chip.FormatPlace(p) == one.Place })
		}
	}
	return false
}

// findPlaces finds the slot of each place. Those for which the host has no CPUs have
// none, and are no places.
func (n *nodePlan) findPlaces() {
	for i := range n.divided {
		d := &n.divided[i]
		all := d.places
		d.places = nil
		for _, p := range all {
			name := d.chip.FormatPlace(p)
			if at := slices.IndexFunc(n.slots, func(s slotPlan) bool { return s.uuid == d.UUID && s.place == name }); at >= 0 {
				d.places, d.slots = append(d.places, p), append(d.slots, at)
			}
		}
		d.narrow = narrowed(d.chip, d.places)
		if d.narrow.Slices() != d.chip.Slices() || d.narrow.Units() != d.chip.Units() {
			d.narrow, d.bounded = d.chip, true
		}
	}
}

// narrowed is a chip that has no other places. The policy could be told the places
// instead, but would then count the chip's layouts anew at each look, which is only
// done where without the other places it were another chip.
func narrowed(chip mig.Chip, places mig.Layout) mig.Chip {
	var profiles []mig.Profile
	for _, p := range chip.Profiles {
		var starts []int
		for _, s := range p.Starts {
			if slices.Contains(places, mig.Place{Profile: p.ID, Start: s}) {
				starts = append(starts, s)
			}
		}
		if p.Starts = starts; len(starts) > 0 {
			profiles = append(profiles, p)
		}
	}
	chip.Profiles = profiles
	return chip
}

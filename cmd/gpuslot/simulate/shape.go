package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
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

// entire reports whether jobs get whole GPUs: also where they are only observed.
func entire(one plan.GPU) bool { return !one.Shared() && !one.MIGDevice() }

// addSlot adds a shared GPU or a MIG device.
func (w *world) addSlot(n *nodePlan, number int, g Group, p Policy, one plan.GPU, at int) error {
	s := shape{group: number, kind: shared, gpu: one, largest: one.LargestRequest, power: g.Power}
	s.hw = hardware{speed: cmp.Or(g.Speed, 1), sms: 1, bandwidth: 1,
		slicing: one.NeedsLimits() || p.Slicing && !one.MIGDevice()}
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
	s := shape{group: number, kind: whole, gpu: all[0], largest: least, power: g.Power,
		hw: hardware{speed: cmp.Or(g.Speed, 1), sms: 1, bandwidth: 1}}
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
		return o.group == s.group && o.kind == s.kind && o.hw == s.hw && o.largest == s.largest &&
			o.gpu.Shares == s.gpu.Shares && o.gpu.Pool == s.gpu.Pool && o.gpu.Profile == s.gpu.Profile
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

// need is what a job of a class takes of a slot of the shape; not ok if it can
// never have one. The rules are those of START (condor.sharedType, wholeType),
// but a job without request_vram is taken to ask for a share.
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

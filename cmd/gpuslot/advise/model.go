package advise

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// model is what the records tell of one product.
type model struct {
	name   string
	memory gpu.MiB
	// gpus of each node; nodes without a name are one.
	gpus map[string]map[gpu.UUID]struct{}
	// ofNode is how many a named node has.
	ofNode int
	// card is the GPU as an inventory has it, chip what MIG makes of it.
	card   gpu.GPU
	chip   gpu.Chip
	hasMIG bool
	// power is of the jobs that had a GPU to themselves.
	power regression
}

// learnModel adds the GPU of a record. Of a MIG device it has only a part.
func (b *Adviser) learnModel(j record.Job) {
	if j.Model == "" || j.Mode == "mig" || j.GPU.IsMIG() {
		return
	}
	m := b.models[j.Model]
	if m == nil && len(b.models) >= mostModels {
		return
	}
	if m == nil {
		m = &model{name: j.Model, gpus: map[string]map[gpu.UUID]struct{}{}}
		b.models[j.Model] = m
	}
	m.memory = max(m.memory, gpu.MiB(j.MemoryMiB))
	if m.gpus[j.Node] == nil {
		m.gpus[j.Node] = map[gpu.UUID]struct{}{}
	}
	if j.GPU != "" {
		m.gpus[j.Node][j.GPU] = struct{}{}
	}
	if share, _ := shareOf(j); share == 1 && !j.Partial && j.Joules.Estimate != nil && j.SM.Estimate != nil &&
		j.Seconds() > 0 {
		m.power.add(*j.SM.Estimate/j.Seconds(), *j.Joules.Estimate/j.Seconds())
	}
}

// learnNode adds the models of a node that the site named, of which there may be
// no record, or only of its MIG devices.
func (b *Adviser) learnNode(inv gpu.Inventory) {
	n := map[string]int{}
	for _, g := range inv.GPUs {
		n[g.Name]++
		m := b.models[g.Name]
		if m == nil {
			m = &model{name: g.Name, gpus: map[string]map[gpu.UUID]struct{}{}}
			b.models[g.Name] = m
		}
		m.memory, m.ofNode = max(m.memory, g.Memory), max(m.ofNode, n[g.Name])
	}
}

// mostModels bounds the models that are told apart.
const mostModels = 1000

// count is how many GPUs are known, and how many the largest node has.
func (m *model) count() (all, ofNode int) {
	ofNode = m.ofNode
	for _, g := range m.gpus {
		all += len(g)
		ofNode = max(ofNode, len(g))
	}
	return all, ofNode
}

// settle finds out what is published of the model. Records do not tell the
// compute capability: it is the published one of a MIG model, the oldest with
// MPS's limits otherwise, or one before those where the name says so.
func (m *model) settle() {
	m.card = gpu.GPU{UUID: cardUUID(0), Name: m.name, Memory: m.memory, Capability: gpu.Volta}
	if before(m.name) {
		m.card.Capability = gpu.ComputeCapability{Major: 6}
	}
	chip, err := mig.ModelOf(m.card, 0)
	m.chip, m.hasMIG = chip, err == nil
	if m.hasMIG {
		m.card.Capability, m.card.MIGCapable, m.card.Multiprocessors = chip.Capability, true, chip.Multiprocessors
	}
}

// cardUUID is that of a GPU on a made-up node.
func cardUUID(i int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i)) }

// before reports whether a product is of a generation before Volta, on which MPS
// isolates nothing.
func before(name string) bool {
	for word := range strings.FieldsSeq(strings.ReplaceAll(name, "-", " ")) {
		switch strings.ToUpper(word) {
		case "K10", "K20", "K20M", "K20X", "K40", "K40M", "K80", "M4", "M6", "M10", "M40", "M60", "P4", "P6", "P40",
			"P100", "GTX":
			return true
		}
	}
	return false
}

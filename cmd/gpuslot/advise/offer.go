package advise

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// errNoMemory: no record says how much VRAM the model has.
var errNoMemory = errors.New("no record says how much VRAM the GPU has")

// offer is one GPU of a model as the plan has it where it is shared through MPS.
type offer struct {
	plan.GPU
	plan plan.Plan
	// isReal: the plan is of a node that the site named, so its CPUs count.
	isReal bool
}

type offerKey struct {
	model  string
	shares int
}

type planned struct {
	offer
	err error
}

// offer plans the model under the site's configuration but for the mode, or with
// other shares; 0 leaves them. Each is planned once.
func (b *Adviser) offer(m *model, shares int) (offer, error) {
	if m == nil {
		return offer{}, errNoMemory
	}
	key := offerKey{m.name, shares}
	p, ok := b.offers[key]
	if !ok {
		p.offer, p.err = b.options.offer(m, shares)
		b.offers[key] = p
	}
	return p.offer, p.err
}

func (o Options) offer(m *model, shares int) (offer, error) {
	if m.memory == 0 {
		return offer{}, errNoMemory
	}
	inv, isReal := o.node(m)
	p, err := buildText(o.requestLines()+"\n"+o.cpuLines()+"\n[sharing]\n"+o.sharingLines(m, shares), inv)
	if err != nil {
		return offer{}, err
	}
	for _, g := range p.GPUs {
		if g.Name == m.name {
			return offer{g, p, isReal}, nil
		}
	}
	return offer{}, fmt.Errorf("the plan leaves %s out: %s", m.name, strings.Join(p.Warnings, " "))
}

// node is the inventory of a node with the model that the site named, or one made
// up of it.
func (o Options) node(m *model) (inv gpu.Inventory, isReal bool) {
	for _, inv := range o.Nodes {
		for _, g := range inv.GPUs {
			if g.Name == m.name {
				return inv, true
			}
		}
	}
	return m.inventory(1), false
}

// inventory is a node with so many of the model. Its host is large enough: what
// CPUs allow is not known from records.
func (m *model) inventory(n int) gpu.Inventory {
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{CPUs: 1024, Memory: 4 << 20}}
	for i := range n {
		g := m.card
		g.Index, g.UUID = i, cardUUID(i)
		g.PCI, _ = gpu.ParsePCIBusID(fmt.Sprintf("0000:%02x:00.0", i+1))
		inv.GPUs = append(inv.GPUs, g)
	}
	return inv
}

// buildText plans a node by a text, as the agent does.
func buildText(text string, inv gpu.Inventory) (plan.Plan, error) {
	cfg, err := config.Parse("advice", []byte(text))
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Build(cfg, inv)
}

func (o Options) requestLines() string {
	r := o.Config.RequestVRAM
	return fmt.Sprintf("[request_vram]\nminimum = %d\nquantum = %d\n", int64(r.Minimum), int64(r.Quantum))
}

// cpuLines keep nothing for jobs without GPUs on a made-up host; the site's own
// reserve on a real one.
func (o Options) cpuLines() string {
	c := o.Config.CPUOnly
	amount := func(a config.Amount) string {
		if a.Percent > 0 {
			return fmt.Sprintf("\"%g%%\"", a.Percent)
		}
		return strconv.FormatInt(a.N, 10)
	}
	return "[cpu_only]\ncpus = " + amount(c.CPUs) + "\nmemory = " + amount(c.Memory) + "\n"
}

// sharingLines are the site's own for the model.
// shared is how the site shares the model, or would: by time slices only where it says so.
func (o Options) shared(m *model) Kind {
	if o.Config.For("", m.card).Mode == config.ModeTimeSlice {
		return TimeSlice
	}
	return MPS
}

func (o Options) sharingLines(m *model, shares int) string {
	s := o.Config.For("", m.card)
	if shares == 0 {
		shares = s.Shares
	}
	text := fmt.Sprintf("mode = %q\nreserved_vram = %d\n", string(o.shared(m)), int64(s.ReservedVRAM))
	if s.LargestRequest > 0 {
		text += fmt.Sprintf("largest_request = %d\n", int64(s.LargestRequest))
	}
	if shares > 0 {
		text += "shares = " + strconv.Itoa(shares) + "\n"
	}
	return text
}

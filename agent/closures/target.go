package closures

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// allGPUs is the name of all GPUs of the node.
const allGPUs = "all"

// Target is what a name stands for.
type Target struct {
	// UUID is that of a closure of it, Index the GPU's.
	UUID  gpu.UUID
	Index int
	// Devices are the GPUs and MIG devices of the plan that a closure of it closes.
	Devices []*plan.GPU
}

func (n Target) String() string {
	if n.UUID.IsMIG() {
		return string(n.UUID)
	}
	return fmt.Sprintf("GPU %d (%s)", n.Index, n.UUID)
}

// Named returns GPUs of the plan by index, UUID, PCI bus id or the beginning of a UUID,
// MIG devices by UUID, and all GPUs by "all".
func Named(p *plan.Plan, name string) ([]Target, error) {
	bus, errBus := gpu.ParsePCIBusID(name)
	found := chosen(p, func(g *plan.GPU) (whole, part bool) {
		whole = name == allGPUs || strconv.Itoa(g.Index) == name || string(g.Physical()) == name ||
			errBus == nil && g.PCI == bus
		return whole, string(g.UUID) == name
	})
	if len(found) > 0 {
		return found, nil
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(name, "GPU-"), "MIG-")
	if bare != "" {
		found = chosen(p, func(g *plan.GPU) (whole, part bool) {
			return strings.HasPrefix(g.Physical().Bare(), bare), strings.HasPrefix(g.UUID.Bare(), bare)
		})
	}
	switch {
	case len(found) == 0 && name == allGPUs:
		return nil, errors.New("there is no GPU in the plan: see gpuslot status")
	case len(found) == 0:
		return nil, fmt.Errorf("there is no GPU %q in the plan: name one by its index, UUID or PCI bus id, "+
			"as gpuslot status shows them, or all", foreign.Clip(name))
	case len(found) > 1:
		return nil, fmt.Errorf("%q begins the UUIDs of %d GPUs: give more of it", foreign.Clip(name), len(found))
	}
	return found, nil
}

// Single returns the one GPU or MIG device of the plan that a name stands for.
func Single(p *plan.Plan, name string) (*plan.GPU, error) {
	found, err := Named(p, name)
	if err != nil {
		return nil, err
	}
	if len(found) > 1 || len(found[0].Devices) > 1 {
		return nil, fmt.Errorf("%q stands for several GPUs or MIG devices: name one by its UUID, as gpuslot status "+
			"shows them", foreign.Clip(name))
	}
	return found[0].Devices[0], nil
}

// chosen are the GPUs that are meant as a whole, and the MIG devices that are
// meant by themselves.
func chosen(p *plan.Plan, is func(*plan.GPU) (whole, part bool)) []Target {
	var found []Target
	for i := range p.GPUs {
		g := &p.GPUs[i]
		n := Target{UUID: g.Physical(), Index: g.Index, Devices: []*plan.GPU{g}}
		whole, part := is(g)
		if !whole && !part {
			continue
		}
		if !whole {
			n.UUID = g.UUID
		}
		if i := slices.IndexFunc(found, func(o Target) bool { return o.UUID == n.UUID }); i >= 0 {
			found[i].Devices = append(found[i].Devices, g)
			continue
		}
		found = append(found, n)
	}
	return found
}

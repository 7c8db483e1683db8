package isolation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// Instances are the GPU instances behind each GPU and MIG device of a node. A device has its own name
// and that of its place. A job on a GPU that the site has divided has all of them. One on a GPU that is
// not divided has none, nor has one on a GPU that gpuslot gives out in devices: it is from before.
type Instances map[gpu.UUID][]devices.Instance

// InstancesOf are those of an inventory. A GPU in MIG mode is divided, whether or not its
// devices can be read. A GPU or device that the inventory lacks stays as it was before, since
// it may be there and not answer. A device has none any more when its instance is another's:
// the driver gives ids again.
func InstancesOf(inv gpu.Inventory, before Instances) Instances {
	of, taken := Instances{}, map[devices.Instance]bool{}
	for _, g := range inv.GPUs {
		of[g.UUID] = nil
		if g.MIGEnabled {
			of[g.UUID] = []devices.Instance{{GPU: g.UUID, All: true}}
		}
		for _, d := range g.MIGDevices {
			i := devices.Instance{GPU: g.UUID, ID: d.GPUInstance}
			had := before[d.UUID] // a device from before, of which only the place cannot be read, keeps that name
			taken[i] = taken[i] || d.Start != nil || len(had) != 1 || had[0] != i
			for _, name := range d.Names(g.UUID) {
				of[name] = []devices.Instance{i}
			}
		}
	}
	for u, had := range before {
		if _, read := of[u]; read {
			continue
		}
		if len(had) > 0 {
			if g, read := inv.GPU(had[0].GPU); taken[had[0]] || read && !g.MIGEnabled {
				had = nil
			}
		}
		of[u] = had
	}
	return of
}

// InstancesOnly says that these GPUs are divided, while nothing else is known of them.
func InstancesOnly(divided []gpu.UUID) Instances {
	of := Instances{}
	of.Divide(divided)
	return of
}

// Divide counts these GPUs as divided, also before they are, and as given out in devices.
func (of Instances) Divide(gpus []gpu.UUID) {
	for _, u := range gpus {
		of[u] = []devices.Instance{{GPU: u}}
	}
}

// Between are the instances while layouts change: a GPU that was divided before counts as divided until it is known
// what came of it.
func Between(before, after Instances) Instances {
	of := Instances{}
	maps.Copy(of, after)
	for _, u := range before.Divided() {
		if len(of[u]) == 0 {
			of[u] = before[u]
		}
	}
	return of
}

// Divided are the GPUs in MIG mode, sorted.
func (of Instances) Divided() []gpu.UUID {
	var all []gpu.UUID
	for u, instances := range of {
		if len(instances) > 0 && instances[0].GPU == u {
			all = append(all, u)
		}
	}
	slices.Sort(all)
	return all
}

// Divided says whether the node has MIG devices, or may have some.
func (c Conditions) Divided() bool { return len(c.Instances.Divided()) > 0 }

// instancesFor are those of what a job got.
func (c Conditions) instancesFor(j jobs.Job) ([]devices.Instance, error) {
	u := cmp.Or(j.Device, j.GPU)
	of, ok := c.Instances[u]
	switch {
	case !ok:
		return nil, fmt.Errorf("the GPU instance of %s is not known", u)
	case len(of) > 0 && of[0].GPU == u && !of[0].All:
		return nil, nil
	}
	return of, nil
}

// withNodes are the jobs of the job table, each once, in their order.
func (c Conditions) withNodes(all []jobs.Job) []nodesJob {
	var out []nodesJob
	for _, r := range all {
		of, err := c.instancesFor(r)
		i := slices.IndexFunc(out, func(j nodesJob) bool { return j.Starter.Is(r.Starter) })
		if i < 0 {
			out = append(out, nodesJob{Job: r})
			i = len(out) - 1
		}
		out[i].own, out[i].err = append(out[i].own, of...), errors.Join(out[i].err, err)
	}
	return out
}

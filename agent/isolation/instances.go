package isolation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// InstancesOf are the GPU instances behind each GPU and MIG device of a node: a
// job on a GPU that is divided has all of them, on one that is not, none.
func InstancesOf(inv gpu.Inventory) map[gpu.UUID][]devices.Instance {
	of := map[gpu.UUID][]devices.Instance{}
	for _, g := range inv.GPUs {
		of[g.UUID] = nil
		for _, d := range g.MIGDevices {
			of[g.UUID] = []devices.Instance{{GPU: g.UUID, All: true}}
			of[d.UUID] = []devices.Instance{{GPU: g.UUID, ID: d.GPUInstance}}
		}
	}
	return of
}

// Divided says whether the node has MIG devices.
func (c Conditions) Divided() bool {
	for _, of := range c.Instances {
		if len(of) > 0 {
			return true
		}
	}
	return false
}

// instancesFor are those of what a job got.
func (c Conditions) instancesFor(j jobs.Job) ([]devices.Instance, error) {
	u := cmp.Or(j.Device, j.GPU)
	u = cmp.Or(c.Device(u), u)
	of, ok := c.Instances[u]
	if !ok {
		return nil, fmt.Errorf("the GPU instance of %s is not known", u)
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

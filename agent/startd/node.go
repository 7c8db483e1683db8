// Package startd deals with HTCondor's startds on this node. It writes what they read at their
// start, asks them which slots they have, finds what they do not run yet of the plan, and tells
// them to take it up. It ends no job: a startd that has to restart waits until its jobs have
// ended.
//
// Start at Startds.Ask, one question with all that follows from the answer; Startds.Run puts
// it again and again. node.go (a plan in HTCondor's terms) and change.go (what is not run yet)
// are pure, and the command-line tools use them, too. orders.go decides when an order is due,
// files.go and execute.go write files and directories.
package startd

import (
	"fmt"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// weights are config's in condor's words.
var weights = map[config.SlotWeight]string{config.WeightCPUs: condor.WeightCPUs,
	config.WeightCPUsOrVRAM: condor.WeightCPUsOrVRAM}

// TenantKey is a key of config's in condor's words; the account is none there.
func TenantKey(k config.TenantKey) string {
	switch k {
	case config.TenantGroup:
		return condor.TenantGroup
	case config.TenantVO:
		return condor.TenantVO
	}
	return ""
}

// Node says a plan in HTCondor's terms, the devices in the plan's order. The
// caller adds the Version.
func Node(p plan.Plan, cfg config.Config) condor.Node {
	paths := cfg.Paths
	p = p.Turn(func(gpu.UUID) bool { return false }) // what is whole now is no matter of HTCondor's configuration
	n := condor.Node{
		CPUs:           p.Host.CPUs,
		Memory:         p.Host.Memory,
		CPUOnly:        share(p.CPUOnly),
		Driver:         p.Driver,
		CUDA:           p.CUDA,
		WithoutRequest: string(p.RequestVRAM.WithoutRequest),
		Minimum:        p.RequestVRAM.Minimum,
		Quantum:        p.RequestVRAM.Quantum,
		Absent:         p.Absent,
		PipeRoot:       paths.PipeRoot(),
		Libexec:        paths.Libexec,
		Inventory:      paths.InventoryAds(),
		Supervise:      cfg.HTCondor.Supervise,
		Divided:        len(p.Divided) > 0,
		Weight:         weights[cfg.Placement.SlotWeight],
		Reserves:       cfg.Placement.LargeAfter > 0,
		Repartition:    string(p.Repartition()),
		PerGPU:         cfg.HTCondor.Layout == config.LayoutStartdPerGPU,
		Execute:        cfg.HTCondor.Execute,
		Growth:         growth(cfg.Growth),
	}
	sum := p.CPUOnly
	for _, g := range p.GPUs {
		n.Devices = append(n.Devices, Device(g))
		sum.CPUs += g.Resources.CPUs
		sum.Memory += g.Resources.Memory
	}
	// Where GPUs have several layouts the slots are more than the node, and never
	// have jobs all at one time.
	n.CPUs, n.Memory = max(n.CPUs, sum.CPUs), max(n.Memory, sum.Memory)
	return n
}

// limitPercent of its budget in a sample means that a job met its limit, if it ended with an error.
const limitPercent = 90

// growth is [growth] with the subcodes by which the access point knows such a
// hold.
func growth(g config.Growth) condor.Growth {
	if g.Retries == 0 {
		return condor.Growth{}
	}
	return condor.Growth{
		Retries: g.Retries, Factor: config.GrowthFactor, ExitCodes: g.ExitCodes, LimitPercent: limitPercent,
		EarlyPercent: g.EarlyPercent,
		OverBudget:   api.CodeOverBudget, AtLimit: api.CodeAtLimit, NearLimit: api.CodeNearLimit,
	}
}

// Device says a planned GPU in HTCondor's terms.
func Device(g plan.GPU) condor.Device {
	d := condor.Device{
		UUID:           g.UUID,
		Index:          g.Index,
		Name:           g.Name,
		PCI:            g.PCI,
		Memory:         g.Memory,
		Capability:     g.Capability,
		Shared:         g.Shared(),
		Elastic:        g.Elastic,
		Shares:         g.Shares,
		WithoutMPS:     g.NeedsLimits(),
		Pool:           g.Pool,
		LargestRequest: g.LargestRequest,
		DefaultRequest: g.DefaultRequest,
		Share:          share(g.Resources),
		Tenant:         TenantKey(g.Tenancy.Key()),
		MostThreads:    g.MostThreads(g.LargestRequest),

		Profile:         g.Profile,
		Place:           g.Place,
		Parent:          g.Parent,
		Multiprocessors: g.Multiprocessors,
	}
	if g.Place != "" {
		d.There = g.Device
	}
	return d
}

func share(r plan.Resources) condor.Share { return condor.Share{CPUs: r.CPUs, Memory: r.Memory} }

// Unreadable says which attributes of a slot's ad cannot be read.
func Unreadable(s condor.Slot) string {
	return fmt.Sprintf("the startd's ad of %s has attributes that cannot be read: "+
		"%s", condor.SlotName(s.Name), s.Unreadable)
}

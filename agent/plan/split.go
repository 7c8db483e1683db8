package plan

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// splitHost gives the CPU-only reserve its part and the rest to the GPUs in
// proportion to their memory. Nothing is given out twice at one time (see spread),
// and with at least one GPU nothing is left over. Without GPUs the rest stays idle: jobs that took
// it would have to be ended when the GPUs come back.
func splitHost(p *Plan, reserve config.CPUOnly, n *notes) {
	offerWithCPUs(p, n)
	cpus := int64(p.Host.CPUs)
	byDefault := config.Default().CPUOnly
	keepCPUs := reserved("cpu_only.cpus", reserve.CPUs, byDefault.CPUs, cpus, int64(len(p.GPUs)), n)
	keepMemory := reserved(
		"cpu_only.memory",
		reserve.Memory,
		byDefault.Memory,
		int64(p.Host.Memory),
		int64(len(p.GPUs)),
		n,
	)
	p.CPUOnly = cpuOnly(keepCPUs, keepMemory, n)
	if len(p.GPUs) == 0 {
		return
	}
	weights := p.weights()
	perGPU := proportional(cpus-int64(p.CPUOnly.CPUs), weights)
	memory := proportional(int64(p.Host.Memory-p.CPUOnly.Memory), weights)
	for i := range p.GPUs {
		p.GPUs[i].Resources = Resources{CPUs: int(perGPU[i]), Memory: gpu.MiB(memory[i])}
	}
	p.spread()
}

// weights are the memory of the GPUs; MIG devices have together that of their
// GPU, so that another layout takes nothing from the other GPUs.
func (p Plan) weights() []int64 {
	whole, inDevices := map[gpu.UUID]gpu.MiB{}, map[gpu.UUID]gpu.MiB{}
	for _, m := range p.MIG {
		whole[m.UUID] = m.Memory
	}
	for _, g := range p.GPUs {
		inDevices[g.Parent] += g.Memory
	}
	weights := make([]int64, len(p.GPUs))
	for i, g := range p.GPUs {
		weights[i] = int64(g.Memory)
		if g.MIGDevice() {
			weights[i] = max(1, int64(whole[g.Parent]*g.Memory/inDevices[g.Parent]))
		}
	}
	return weights
}

// offerWithCPUs drops the last GPUs of a host that cannot give each at least
// one CPU and one MiB: a slot needs both.
func offerWithCPUs(p *Plan, n *notes) {
	most := int(min(int64(p.Host.CPUs), int64(p.Host.Memory), int64(len(p.GPUs))))
	for _, g := range p.GPUs[max(0, most):] {
		n.warn(g.UUID, "not offered: the host's %d CPUs do not give every GPU one", p.Host.CPUs)
	}
	p.GPUs = p.GPUs[:max(0, most)]
}

// reserved is the CPU-only part of one resource, which must leave each GPU one
// unit. A reserve that nobody asked for gives way.
func reserved(key string, a, byDefault config.Amount, total, gpus int64, n *notes) int64 {
	want, most := a.Of(total), total-gpus
	switch {
	case 0 <= want && want <= most:
		return want
	case a == byDefault:
		return max(0, most)
	}
	n.fail("", "%s keeps %d of the host's %d, but each of its %d GPUs needs at least 1: keep %d or "+
		"less", key, want, total, gpus, most)
	return 0
}

// cpuOnly is the slot for jobs without GPUs: both resources or none.
func cpuOnly(cpus, memory int64, n *notes) Resources {
	if cpus > 0 && memory == 0 {
		n.warn("", "cpu_only keeps %d CPUs but no memory, so there is no slot for jobs without GPUs: set "+
			"cpu_only.memory", cpus)
	}
	if cpus == 0 || memory == 0 {
		return Resources{}
	}
	return Resources{CPUs: int(cpus), Memory: gpu.MiB(memory)}
}

// proportional splits total by weight with the largest remainder method, ties
// going to the earlier one, and lifts every part to at least 1. total must be
// at least len(weights), every weight positive. The parts sum to total.
func proportional(total int64, weights []int64) []int64 {
	var sum, given int64
	for _, w := range weights {
		sum += w
	}
	parts := make([]int64, len(weights))
	order := make([]int, len(weights))
	for i, w := range weights {
		parts[i], order[i] = total*w/sum, i
		given += parts[i]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(total*weights[b]%sum, total*weights[a]%sum)
	})
	for _, i := range order[:total-given] {
		parts[i]++
	}
	for i := range parts {
		for parts[i] < 1 {
			parts[indexOfLargest(parts)]--
			parts[i]++
		}
	}
	return parts
}

func indexOfLargest(v []int64) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}

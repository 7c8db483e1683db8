// Package sharing is the model of how jobs that share a GPU slow each other down. gpuslot
// advise and gpuslot simulate use it; docs/simulate.md has its formulae and holds them to
// published results. What nobody knows of a job is a Case. Start at Contention.
package sharing

// Case is a set of assumptions about what records and files do not tell.
type Case int

// Expected: kernels come at random. Best: they never meet while there is room. Worst: a
// kernel meets one of every other job each time.
const (
	Expected Case = iota
	Best
	Worst
)

// Cases are all of them.
func Cases() []Case { return []Case{Expected, Best, Worst} }

const (
	// MostTraffic is the practical maximum of the memory interface's activity (NVIDIA,
	// DCGM documentation of DCGM_FI_PROF_DRAM_ACTIVE).
	MostTraffic = 0.8
	// leastOfPart and mostOfPart are how much of its part of the multiprocessors a MIG
	// device gave: the least and, with faster, the most of CERN's FLOPS (2023): fp32 on
	// 1g, and fp16 on the tensor cores on 2g.
	leastOfPart = 0.98
	mostOfPart  = 1.38
	// faster is how much faster than on the whole GPU a small job ran on a MIG device:
	// 10.56 minutes by 9.41 (arXiv 2505.08562, Table 1). The cause is not told.
	faster = 10.56 / 9.41
	// secondThread is what the second hardware thread of a core adds to the work of the
	// first (Intel Technology Journal 6(1), 2002: up to 30 %).
	secondThread = 0.3
)

// OfPart is how much of its part of the multiprocessors a MIG device gives a kernel that
// fills it.
func (c Case) OfPart() float64 {
	switch c {
	case Best:
		return mostOfPart
	case Worst:
		return leastOfPart
	}
	return 1
}

// Faster is how much faster all of a job is on a MIG device for other reasons.
func (c Case) Faster() float64 {
	if c == Best {
		return faster
	}
	return 1
}

// Host is how much longer the host's part of the jobs takes while this part of a node's
// CPUs, which are hardware threads, is in use. A core has so many of them.
func (c Case) Host(load float64, threadsPerCore int) float64 {
	cores := 1 / float64(max(1, threadsPerCore))
	if load <= cores || c == Best {
		return 1
	}
	more := 0.0 // what the threads beyond the first add
	if c == Expected {
		more = secondThread
	}
	return load / (cores + more*(load-cores))
}

// Part is a job as the model sees it, in seconds of its run time on the slot that it has.
type Part struct {
	// Host is the time that it needs without a kernel; Kernel that with one, as long as
	// nobody else hinders it.
	Host, Kernel float64
	// SMs and Bandwidth are what its kernels take of the slot, in seconds of all of it.
	SMs, Bandwidth float64
}

// Contention is by how much the kernels of jobs that share a slot take longer; at least 1.
// A job then takes Host + Contention*Kernel. In time slices a kernel has the GPU to itself.
func (c Case) Contention(parts []Part, slicing bool) float64 {
	switch {
	case len(parts) < 2:
		return 1
	case c == Best && slicing:
		return busy(parts, func(p *Part) float64 { return p.Kernel })
	case c == Best:
		return max(busy(parts, func(p *Part) float64 { return p.SMs }),
			busy(parts, func(p *Part) float64 { return p.Bandwidth }))
	}
	others := float64(len(parts)-1) / float64(len(parts))
	met := 1.0
	for i := range parts {
		met += others * c.fill(&parts[i], slicing)
	}
	if c == Worst {
		return met
	}
	// The root of 1 + others*sum(fill*presence) - c, which is concave: Newton's method from
	// the right never passes it.
	for range 64 {
		excess, slope := 1-met, -1.0
		for i := range parts {
			p := &parts[i]
			total := p.Host + met*p.Kernel
			if p.Kernel <= 0 {
				continue
			}
			f := others * c.fill(p, slicing) * p.Kernel / total
			excess += f * met
			slope += f * p.Host / total
		}
		if excess >= -1e-9 || slope >= 0 {
			break
		}
		met -= excess / slope
	}
	return max(1, met)
}

// fill is how much of the slot a kernel of the job keeps from another one's kernel while
// it runs: of what it needs most, or at worst of both one after the other.
func (c Case) fill(p *Part, slicing bool) float64 {
	switch {
	case p.Kernel <= 0:
		return 0
	case slicing:
		return 1
	case c == Worst:
		return (p.SMs + p.Bandwidth) / p.Kernel
	}
	return max(p.SMs, p.Bandwidth) / p.Kernel
}

// busy is the least c from 1 on at which the jobs take no more than there is:
// the sum of taken/(host + c*kernel) is 1. The sum falls with c and is convex, so
// Newton's method from the left comes nearer with each step and never passes it.
func busy(parts []Part, taken func(*Part) float64) float64 {
	c := 1.0
	for range 64 {
		excess, slope := -1.0, 0.0
		for i := range parts {
			p := &parts[i]
			total := p.Host + c*p.Kernel
			if total <= 0 {
				continue
			}
			share := taken(p) / total
			excess += share
			slope -= share * p.Kernel / total
		}
		if excess <= 1e-9 || slope >= 0 {
			return c
		}
		c -= excess / slope
	}
	return c
}

// OnDevice is how long a job takes on a MIG device by its time alone on the whole GPU, where
// only the parts of the time are known in which it keeps the multiprocessors and the memory
// interface busy. Those and the device's parts are 0 to 1; host is how much longer the host's
// part takes. How many multiprocessors a kernel fills is not known: if all, the kernels
// alone become longer (Worst); if few, nothing does until the device is full (Best).
// Expected is half-way.
func (c Case) OnDevice(sms, bandwidth, partOfSMs, partOfBandwidth, host float64) float64 {
	part := partOfSMs * c.OfPart()
	filling := max((1-sms)*host+sms/part, (1-bandwidth)*host+bandwidth/partOfBandwidth)
	small := max(host, sms/part, bandwidth/partOfBandwidth)
	switch c {
	case Best:
		return small / c.Faster()
	case Worst:
		return filling
	}
	return (filling + small) / 2
}

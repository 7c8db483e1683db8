package simulate

import "math"

// hardware is what a slot works with.
type hardware struct {
	// speed is that of its GPUs' kernels.
	speed float64
	// sms and bandwidth are the parts of its GPU that it has: 1 but for MIG devices.
	sms, bandwidth float64
	// slicing: its jobs share it in time slices; device: it is a MIG device.
	slicing, device bool
}

// part is a job as the model sees it, on the slot it has.
type part struct {
	// host is the time that it needs without a kernel, dead time with it; kernel that
	// with one, as long as no other job slows it.
	host, kernel float64
	// sms and bandwidth are what its kernels take of the slot, in seconds of all of it.
	sms, bandwidth float64
}

// partOf is what a job is on a slot with so many jobs. Limit is its active thread
// percentage as a part; stretch is how much longer the host's part takes.
func (m *Model) partOf(w Work, hw *hardware, jobs int, limit, stretch float64) part {
	kernel := w.Seconds * w.Kernel / hw.speed
	p := part{host: w.Dead + stretch*w.Seconds*(1-w.Kernel), sms: kernel * w.SM / hw.sms,
		bandwidth: kernel * w.Bandwidth / hw.bandwidth}
	p.kernel = kernel * max(1, w.SM/min(hw.sms, limit), w.Bandwidth/hw.bandwidth)
	switch {
	case jobs > 1 && hw.slicing:
		p.kernel *= 1 + m.Slicing
	case jobs > 1:
		p.kernel *= 1 + m.MPS
	}
	if hw.device {
		p.kernel *= 1 + m.MIG
	}
	return p
}

// contention is by how much kernels take longer because all jobs together ask for more
// than there is; at least 1. In time slices it is the time that only one has the
// GPU, else its multiprocessors and its memory's bandwidth.
func contention(parts []part, slicing bool) float64 {
	if len(parts) < 2 {
		return 1
	}
	if slicing {
		return stretch(parts, func(p *part) float64 { return p.kernel })
	}
	return max(stretch(parts, func(p *part) float64 { return p.sms }),
		stretch(parts, func(p *part) float64 { return p.bandwidth }))
}

// stretch is the least c from 1 on at which the jobs take no more than there is:
// the sum of taken/(host + c*kernel) is 1. The sum falls with c and is convex, so
// Newton's method from the left comes nearer with each step and never passes it.
func stretch(parts []part, taken func(*part) float64) float64 {
	c := 1.0
	for range 64 {
		excess, slope := -1.0, 0.0
		for i := range parts {
			p := &parts[i]
			total := p.host + c*p.kernel
			if total <= 0 {
				continue
			}
			share := taken(p) / total
			excess += share
			slope -= share * p.kernel / total
		}
		if excess <= 1e-9 || slope >= 0 {
			return c
		}
		c -= excess / slope
	}
	return c
}

// hostStretch is how much longer the host's part takes with this part of the
// node's CPUs in use. It changes in steps of 1/32, so that not every start on a node
// is felt by all of its jobs.
func (m *Model) hostStretch(load float64) float64 {
	if m.HostLoss == 0 || m.HostKnee >= 1 {
		return 1
	}
	load = min(math.Floor(load*32+1e-9)/32, 1)
	return 1 + m.HostLoss*max(0, load-m.HostKnee)/(1-m.HostKnee)
}

package simulate

import (
	"math"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
)

// hardware is what a slot works with.
type hardware struct {
	// speed is that of its GPUs' kernels.
	speed float64
	// sms and bandwidth are the parts of its GPU that it has: 1 but for MIG devices.
	sms, bandwidth float64
	// slicing: its jobs share it in time slices; device: it is a MIG device.
	slicing, device bool
}

// partOf is what a job is on a slot with so many jobs; its dead time is the host's. Limit
// is its active thread percentage as a part; stretch is how much longer the host's part takes.
func (m *Model) partOf(w Work, hw *hardware, jobs int, limit, stretch float64) sharing.Part {
	kernel, host := w.Seconds*w.Kernel/hw.speed, stretch*w.Seconds*(1-w.Kernel)
	sms := min(hw.sms, limit)
	if hw.device {
		kernel, host = kernel/m.Case.Faster(), host/m.Case.Faster()
		sms *= m.Case.OfPart()
	}
	p := sharing.Part{Host: w.Dead + host, SMs: kernel * w.SM / hw.sms, Bandwidth: kernel * w.Bandwidth / hw.bandwidth}
	p.Kernel = kernel * max(1, w.SM/sms, w.Bandwidth/hw.bandwidth)
	switch {
	case jobs > 1 && hw.slicing:
		p.Kernel *= 1 + m.Slicing
	case jobs > 1:
		p.Kernel *= 1 + m.MPS
	}
	if hw.device {
		p.Kernel *= 1 + m.MIG
	}
	return p
}

// hostStretch is how much longer the host's part takes with this part of the
// node's CPUs in use. It changes in steps of 1/32, so that not every start on a node
// is felt by all of its jobs.
func (m *Model) hostStretch(load float64) float64 {
	return m.Case.Host(min(math.Floor(load*32+1e-9)/32, 1), m.ThreadsPerCore)
}

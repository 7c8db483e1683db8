package history

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// Complete returns the record of a job with what the plan says of its GPU and what the
// samples say of its slot. What neither knows stays absent.
func Complete(out record.Job, slot usage.SlotKey, p *plan.Plan, snap *usage.Snapshot) record.Job {
	if g, ok := p.GPU(out.GPU); ok {
		out.Model, out.Mode, out.MemoryMiB, out.Share = g.Name, string(g.Mode), int64(g.Memory), 1
		if g.Shared() {
			out.Share = float64(out.BudgetMiB) / float64(max(g.Pool, 1))
		}
		out.Share *= partOf(p, &g)
	}
	u, ok := snap.Last(slot, snap.DeviceOf(out.GPU))
	if !ok {
		return out
	}
	if u.Peak.Known {
		mib := int64(u.Peak.Value.MiB())
		out.PeakMiB = &mib
	}
	out.Curve, out.Method = u.Curve, string(u.Method)
	out.SM, out.Joules = BoundsOf(u.Job.SM), BoundsOf(u.Job.Energy)
	out.DRAMSeconds, out.IdleSeconds = rounded(u.Job.DRAM), rounded(u.Job.Idle)
	return out
}

// partOf is a MIG device's part of its GPU, by compute slices where they are
// published, else by memory; 1 of a GPU.
func partOf(p *plan.Plan, g *plan.GPU) float64 {
	for _, m := range p.MIG {
		switch {
		case m.UUID != g.Parent:
		case g.Slices > 0 && m.Slices > 0:
			return float64(g.Slices) / float64(m.Slices)
		case m.Memory > 0:
			return float64(g.Memory) / float64(m.Memory)
		}
	}
	return 1
}

// BoundsOf returns an amount to the millisecond or millijoule.
func BoundsOf(s usage.Spread) record.Bounds {
	return record.Bounds{Min: rounded(s.Lower), Estimate: rounded(s.Estimate), Max: rounded(s.Upper)}
}

// rounded has three digits after the point; nil if it is not known.
func rounded(m gpu.Measured[float64]) *float64 {
	if !m.Known {
		return nil
	}
	v := math.Round(m.Value*1000) / 1000
	return &v
}

// EndText describes the end of a job in one sentence.
func EndText(r record.Job) string {
	s := "The job ended after " + r.End.Sub(r.Begin).Round(time.Second).String()
	if r.PeakMiB != nil {
		s += fmt.Sprintf("; its VRAM peaked at %d MiB of %d MiB", *r.PeakMiB, cmp.Or(r.BudgetMiB, r.MemoryMiB))
	}
	if r.HoldReason != "" {
		s += "; gpuslot had it held: " + r.HoldReason
	}
	return s + "."
}

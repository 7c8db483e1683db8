package simulate

import (
	"errors"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Calibrate finds what a benchmark of one job on one GPU says: the work of that job, and
// how much is lost by each way of sharing. What was not measured stays as it
// is in usual and m. notes are sentences on what rests on what.
func Calibrate(r bench.Result, m Model, usual Work) (Model, Work, []string, error) {
	points := r.Points()
	alone, ok := bench.Alone(points)
	if !ok {
		return m, usual, nil, errors.New("no copy ran alone: run gpuslot bench with mode exclusive")
	}
	w := usual
	w.Seconds = alone.JobSeconds.Median
	c := calibration{model: m, work: w, gpu: r.Machine.GPU}
	c.alone(alone)
	for _, mode := range []bench.Mode{bench.TimeSlice, bench.MPS, bench.MIG} {
		if p, ok := most(points, mode); ok {
			c.fit(p)
		}
	}
	return c.model, c.work, c.notes, nil
}

type calibration struct {
	model    Model
	work     Work
	gpu      gpu.GPU
	measured bool
	notes    []string
}

// alone reads the work off the job that ran by itself.
func (c *calibration) alone(p bench.Point) {
	if p.KernelTime == nil || p.KernelTime.Median <= 0 {
		return
	}
	c.measured = true
	c.work.Kernel = min(p.KernelTime.Median, 1)
	c.notes = append(c.notes, "the kernels' part of the time is that of the job alone")
	if p.SMActivity != nil {
		c.work.SM = fraction(p.SMActivity.Median, c.work.Kernel)
	}
	if p.DRAMActivity != nil {
		c.work.Bandwidth = fraction(p.DRAMActivity.Median, c.work.Kernel)
	}
}

// most is the point of a mode with the most copies.
func most(points []bench.Point, mode bench.Mode) (best bench.Point, ok bool) {
	for _, p := range points {
		if p.Mode == mode && p.Repeats > 0 && p.Copies > 1 && p.Copies >= best.Copies {
			best, ok = p, true
		}
	}
	return best, ok
}

// fit finds the loss at which the model says what was measured.
func (c *calibration) fit(p bench.Point) {
	took := p.JobSeconds.Median
	switch p.Mode {
	case bench.TimeSlice:
		if !c.measured {
			c.work.Kernel = fraction(took, float64(p.Copies)*c.work.Seconds)
			c.notes = append(c.notes, "the kernels' part of the time is what copies in time slices left of it: "+
				"an upper bound if they did not fill the GPU")
			return
		}
		c.model.Slicing = c.loss(took, func(loss float64) float64 {
			return c.took(Model{Slicing: loss}, hardware{speed: 1, sms: 1, bandwidth: 1, slicing: true}, p.Copies)
		})
	case bench.MPS:
		c.model.MPS = c.loss(took, func(loss float64) float64 {
			return c.took(Model{MPS: loss}, hardware{speed: 1, sms: 1, bandwidth: 1}, p.Copies)
		})
	case bench.MIG:
		hw := hardware{speed: 1, sms: 1 / float64(p.Copies), bandwidth: 1 / float64(p.Copies), device: true}
		if chip, err := mig.ModelOf(c.gpu, 0); err == nil {
			if profile, err := mig.ProfileNamed(chip, p.Profile); err == nil {
				hw.sms, hw.bandwidth = chip.Parts(profile)
			}
		}
		c.model.MIG = c.loss(took, func(loss float64) float64 { return c.took(Model{MIG: loss}, hw, 1) })
	}
}

// took is the run time of so many copies by the model.
func (c *calibration) took(m Model, hw hardware, copies int) float64 {
	var parts []sharing.Part
	for range copies {
		parts = append(parts, m.partOf(c.work, &hw, copies, hw.sms, 1))
	}
	return parts[0].Host + m.Case.Contention(parts, hw.slicing)*parts[0].Kernel
}

// maxLoss is where the search for a loss ends.
const maxLoss = 20

// loss is the least at which the time is reached; 0 if the model is slower without any.
func (c *calibration) loss(want float64, took func(float64) float64) float64 {
	low, high := 0.0, float64(maxLoss)
	if took(low) >= want {
		return 0
	}
	if took(high) <= want {
		return high
	}
	for range 60 {
		if middle := (low + high) / 2; took(middle) < want {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

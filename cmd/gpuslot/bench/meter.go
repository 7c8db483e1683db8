package bench

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Meter adds readings of one GPU up over one run.
type Meter struct {
	gpu gpu.UUID
	// job is whose a process is.
	job func(pid int) (int, bool)

	readings     int
	first, last  gpu.Reading
	watts        float64 // joules by power
	powerMissing bool
	sm, dram     mean
	kernels      mean
	idle, peak   *gpu.MiB
	jobs         map[int]gpu.MiB
}

// NewMeter begins a run of copies; job says which of them, counted from 0, a
// process belongs to. The first reading is of the GPU before the run.
func NewMeter(u gpu.UUID, job func(pid int) (int, bool)) *Meter {
	return &Meter{gpu: u, job: job, jobs: map[int]gpu.MiB{}}
}

// Add takes a reading of all GPUs; what a GPU does not tell is left unknown.
func (m *Meter) Add(readings []gpu.Reading) {
	for _, r := range readings {
		if r.GPU != m.gpu || r.Err != nil {
			continue
		}
		m.energy(r)
		m.memory(r)
		if m.readings > 0 { // what the first one says lies before the run
			m.sm.add(r.SMActivity)
			m.dram.add(r.DRAMActivity)
			m.kernels.add(r.KernelTime)
			m.processes(r)
		} else {
			m.first = r
		}
		m.last = r
		m.readings++
	}
}

func (m *Meter) energy(r gpu.Reading) {
	m.powerMissing = m.powerMissing || !r.Power.Known
	if m.readings > 0 && !m.powerMissing {
		m.watts += float64(m.last.Power.Value+r.Power.Value) / 2 / 1000 * r.At.Sub(m.last.At).Seconds()
	}
}

func (m *Meter) memory(r gpu.Reading) {
	used, ok := usedBy(r)
	if !ok {
		return
	}
	if m.readings == 0 {
		m.idle = &used
		return
	}
	m.peak = larger(m.peak, &used)
}

// usedBy is the memory in use: the GPU's, or that of its MIG devices together.
func usedBy(r gpu.Reading) (sum gpu.MiB, ok bool) {
	if !r.MIGEnabled {
		return r.Memory.Value.Used.MiB(), r.Memory.Known
	}
	for _, i := range r.Instances {
		if !i.Memory.Known {
			return 0, false
		}
		sum += i.Memory.Value.Used.MiB()
	}
	return sum, len(r.Instances) > 0
}

// processes adds each job's processes up. One whose memory is not known makes
// the sum of its job unknown in this reading.
func (m *Meter) processes(r gpu.Reading) {
	sums, untold := map[int]gpu.Bytes{}, map[int]bool{}
	add := func(u gpu.Use) {
		for _, p := range u.Processes.Value {
			if j, ok := m.job(p.PID); ok {
				sums[j] += p.Memory.Value
				untold[j] = untold[j] || !p.Memory.Known
			}
		}
	}
	add(r.Use)
	for _, i := range r.Instances {
		add(i.Use)
	}
	for j, sum := range sums {
		if !untold[j] {
			m.jobs[j] = max(m.jobs[j], sum.MiB())
		}
	}
}

// Into puts what was measured into a run.
func (m *Meter) Into(r *Run) {
	m.energyInto(r)
	r.SMActivity, r.DRAMActivity, r.KernelTime = m.sm.value(), m.dram.value(), m.kernels.value()
	r.IdleVRAM, r.PeakVRAM = m.idle, m.peak
	for i := range r.Jobs {
		if peak, seen := m.jobs[i]; seen {
			r.Jobs[i].PeakVRAM = &peak
		}
	}
}

func (m *Meter) energyInto(r *Run) {
	switch {
	case m.readings < 2:
	// A counter that stands still counts nothing, as where a machine is virtual.
	case m.first.Energy.Known && m.last.Energy.Known && m.last.Energy.Value > m.first.Energy.Value:
		j := float64(m.last.Energy.Value-m.first.Energy.Value) / 1000
		r.Energy, r.EnergyFrom = &j, EnergyCounter
	case !m.powerMissing:
		j := m.watts
		r.Energy, r.EnergyFrom = &j, EnergyPower
	}
}

// mean of activities, each as long as it lasted.
type mean struct {
	sum  float64
	time time.Duration
}

func (m *mean) add(a gpu.Measured[gpu.Activity]) {
	if d := a.Value.To.Sub(a.Value.From); a.Known && d > 0 {
		m.sum += a.Value.Ratio * d.Seconds()
		m.time += d
	}
}

func (m *mean) value() *float64 {
	if m.time == 0 {
		return nil
	}
	v := min(m.sum/m.time.Seconds(), 1)
	return &v
}

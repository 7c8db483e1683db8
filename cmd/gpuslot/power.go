package main

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// powerOver is the time that power is the mean of: the agent adds energy when
// the activity of an interval is known, which may be some samples later.
const powerOver = 5 * time.Second

// power turns the jobs' energy into watts, look by look.
type power struct{ jobs map[jobOnGPU][]reading }

// jobOnGPU distinguishes two jobs of one slot.
type jobOnGPU struct {
	gpu, slot string
	since     int64
}

// reading is the energy of a job at one moment.
type reading struct {
	at     time.Time
	joules float64
}

func newPower() *power { return &power{jobs: map[jobOnGPU][]reading{}} }

// see takes one look at all jobs and forgets those that are gone.
func (p *power) see(s api.Status, now time.Time) {
	next := map[jobOnGPU][]reading{}
	for _, g := range s.GPUs {
		for _, j := range g.Jobs {
			if j.Joules == nil {
				continue
			}
			k := keyOf(g.UUID, j)
			old := p.jobs[k]
			for len(old) > 1 && now.Sub(old[0].at) > powerOver {
				old = old[1:]
			}
			next[k] = append(old[:len(old):len(old)], reading{now, *j.Joules})
		}
	}
	p.jobs = next
}

func keyOf(gpu string, j api.StatusJob) jobOnGPU { return jobOnGPU{gpu, j.Slot, j.Since.UnixNano()} }

// watts is a job's power; nil while there is only one look.
func (p *power) watts(gpu string, j api.StatusJob) *float64 {
	r := p.jobs[keyOf(gpu, j)]
	if len(r) < 2 {
		return nil
	}
	first, last := r[0], r[len(r)-1]
	took := last.at.Sub(first.at).Seconds()
	if took <= 0 || last.joules < first.joules {
		return nil
	}
	w := (last.joules - first.joules) / took
	return &w
}

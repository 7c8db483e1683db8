package main

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/agent/record"
)

// usageKeys are what records are summed up by.
var usageKeys = map[string]func(record.Job) string{
	"group": func(r record.Job) string { return r.Group },
	"user":  func(r record.Job) string { return r.Owner },
	"job":   func(r record.Job) string { return r.Job },
	"gpu":   func(r record.Job) string { return string(r.GPU) },
}

// usageSum is the sum of some records. GPU-hours are of whole GPUs; what no
// record knows is nil.
type usageSum struct {
	Key           string   `json:"key"`
	Jobs          int      `json:"jobs"`
	Held          int      `json:"held"`
	Allocated     float64  `json:"allocated_gpu_hours"`
	Active        *float64 `json:"active_gpu_hours,omitempty"`
	Least         *float64 `json:"active_gpu_hours_min,omitempty"`
	Most          *float64 `json:"active_gpu_hours_max,omitempty"`
	ActiveUnknown int      `json:"jobs_active_unknown"`
	KWh           *float64 `json:"kwh,omitempty"`
	EnergyUnknown int      `json:"jobs_energy_unknown"`
	PeakMiB       *int64   `json:"vram_peak_mib,omitempty"`
}

// sumUp sums records by a key, the largest allocation first.
func sumUp(records []record.Job, key func(record.Job) string) (sums []usageSum, total usageSum) {
	place := map[string]int{}
	total.Key = "total"
	for _, r := range records {
		k := key(r)
		i, ok := place[k]
		if !ok {
			i = len(sums)
			place[k] = i
			sums = append(sums, usageSum{Key: k})
		}
		sums[i].add(r)
		total.add(r)
	}
	slices.SortFunc(sums, func(a, b usageSum) int {
		return cmp.Or(cmp.Compare(b.Allocated, a.Allocated), cmp.Compare(a.Key, b.Key))
	})
	return sums, total
}

const (
	secondsPerHour = 3600
	joulesPerKWh   = 3.6e6
)

func (s *usageSum) add(r record.Job) {
	s.Jobs++
	if r.HoldCode != 0 {
		s.Held++
	}
	s.Allocated += r.Share * r.End.Sub(r.Begin).Hours()
	if r.SM.Estimate == nil {
		s.ActiveUnknown++
	}
	if r.Joules.Estimate == nil {
		s.EnergyUnknown++
	}
	s.Active, s.Least, s.Most = plus(s.Active, r.SM.Estimate, secondsPerHour), plus(s.Least, r.SM.Min, secondsPerHour),
		plus(s.Most, r.SM.Max, secondsPerHour)
	s.KWh = plus(s.KWh, r.Joules.Estimate, joulesPerKWh)
	if r.PeakMiB != nil && (s.PeakMiB == nil || *r.PeakMiB > *s.PeakMiB) {
		s.PeakMiB = r.PeakMiB
	}
}

// plus adds what is known, in another unit.
func plus(sum, part *float64, unit float64) *float64 {
	if part == nil {
		return sum
	}
	v := *part / unit
	if sum != nil {
		v += *sum
	}
	return &v
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// monthSum are the fields of the EGI record, summed up over the jobs that ended
// in a month. Hours are as the record counts them: of the share, so that an
// ActiveDuration as long as the AvailableDuration is a share well used.
type monthSum struct {
	// Month is "2026-11", in UTC.
	Month string `json:"month"`
	VO    string `json:"fqan,omitempty"`
	Model string `json:"model,omitempty"`
	Jobs  int    `json:"jobs"`
	// Count is the mean share of the jobs whose share is known.
	Count     *float64 `json:"count,omitempty"`
	Available float64  `json:"available_hours"`
	Active    *float64 `json:"active_hours,omitempty"`
	Least     *float64 `json:"active_hours_min,omitempty"`
	Most      *float64 `json:"active_hours_max,omitempty"`
	// Unknown are the jobs that add nothing to Active.
	Unknown int `json:"jobs_active_unknown"`

	shares float64
	shared int
}

type monthKey struct{ month, vo, model string }

// monthsOf sums records up, the oldest month first.
func monthsOf(records []record.Job) []monthSum {
	sums := map[monthKey]*monthSum{}
	for _, r := range records {
		k := monthKey{r.End.UTC().Format("2006-01"), r.VO, r.Model}
		s := sums[k]
		if s == nil {
			s = &monthSum{Month: k.month, VO: k.vo, Model: k.model}
			sums[k] = s
		}
		s.add(r)
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b monthKey) int {
		return cmp.Or(cmp.Compare(a.month, b.month), cmp.Compare(a.vo, b.vo), cmp.Compare(a.model, b.model))
	})
	out := make([]monthSum, 0, len(keys))
	for _, k := range keys {
		out = append(out, *sums[k])
	}
	return out
}

func (s *monthSum) add(r record.Job) {
	s.Jobs++
	s.Available += r.End.Sub(r.Begin).Hours()
	if r.Share > 0 {
		s.shares += r.Share
		s.shared++
		mean := s.shares / float64(s.shared)
		s.Count = &mean
	}
	if r.Share <= 0 || r.SM.Estimate == nil {
		s.Unknown++
		return
	}
	ofShare := r.Share * secondsPerHour
	s.Active, s.Least, s.Most = plus(s.Active, r.SM.Estimate, ofShare), plus(s.Least, r.SM.Min, ofShare),
		plus(s.Most, r.SM.Max, ofShare)
}

func egiText(w io.Writer, site string, months []monthSum) {
	if len(months) == 0 {
		fmt.Fprintln(w, "no job ended in that time")
		return
	}
	t := &show.Table{}
	t.Row("MONTH", "SITE", "FQAN", "MODEL", "JOBS", "COUNT", "AVAILABLE/h", "ACTIVE/h", "LEAST", "MOST", "UNKNOWN")
	for _, m := range months {
		vo := m.VO
		if vo != "" {
			vo = fqan(vo)
		}
		t.Row(m.Month, site, show.OrDash(vo), show.OrDash(m.Model), strconv.Itoa(m.Jobs), amount(m.Count),
			amount(&m.Available),
			amount(m.Active), amount(m.Least), amount(m.Most), strconv.Itoa(m.Unknown))
	}
	t.Print(w)
}

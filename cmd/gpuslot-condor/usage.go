package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
)

// A job's numbers reach its ad only with an update of the collector, which has
// many nodes to serve and costs the startd a millisecond: a job's next one comes
// after a twentieth of its life, within these bounds, and earlier if its VRAM
// grows by more than a part. The first comes as soon as it has any.
const (
	soonest    = 2 * time.Second
	latest     = time.Minute
	partOfLife = 20
	partOfVRAM = 16
	// idle is how old a job without VRAM is at its first report.
	idle = 5 * time.Second
)

// reportUsage prints what each running job used. If the agent cannot be asked
// it prints nothing: a zero would be a claim.
func (p program) reportUsage(args []string) int {
	o, err := p.parse("usage", args, monitorTimeout)
	if err != nil {
		return usage
	}
	told := reports{}
	said := ""
	for {
		reply, err := o.call(api.Request{Op: api.OpUsage})
		if err != nil && err.Error() != said {
			fmt.Fprintf(p.stderr, "gpuslot-condor: %v\n", err)
			said = err.Error()
		}
		if err == nil {
			said = ""
			var news []condor.Use
			told, news = told.next(ofStartd(o.startd, reply.Uses), time.Now())
			if _, err := p.stdout.Write(condor.UsageAds(news)); err != nil {
				return 1 // the startd is gone
			}
		}
		switch {
		case !o.follow && err != nil:
			return 1
		case !o.follow:
			return 0
		}
		time.Sleep(askEvery)
	}
}

// ofStartd are the jobs in the slots of one startd.
func ofStartd(startd string, uses []api.Use) []api.Use {
	return slices.DeleteFunc(uses, func(u api.Use) bool { return condor.StartdOf(u.Slot) != startd })
}

// report is what was printed last of one slot.
type report struct {
	use api.Use
	at  time.Time
}

// reports are the last ones, by slot. It is a value: each answer makes the next.
type reports map[string]report

// next chooses what to print. A slot with another name than a dynamic one's is
// none of the startd's.
func (r reports) next(uses []api.Use, now time.Time) (reports, []condor.Use) {
	next := make(reports, len(uses))
	var news []condor.Use
	for _, u := range uses {
		slot, dynamic, err := condor.ParseSlot(u.Slot)
		if err != nil {
			continue
		}
		last, before := r[u.Slot]
		if untouched(u) && u.Seconds < idle.Seconds() {
			continue // its first report can wait
		}
		if before && last.use.Job == u.Job && u.Seconds >= last.use.Seconds && !last.due(u, now) {
			next[u.Slot] = last
			continue
		}
		next[u.Slot] = report{u, now}
		news = append(news, condor.Use{SlotID: slot, DSlotID: dynamic, VRAM: u.PeakMiB,
			GPUSeconds: u.GPUSeconds, GPUSecondsMin: u.GPUSecondsMin, GPUSecondsMax: u.GPUSecondsMax, Joules: u.Joules})
	}
	return next, news
}

// due: it is time for the same job's next report.
func (r report) due(u api.Use, now time.Time) bool {
	if grown(r.use.PeakMiB, u.PeakMiB) {
		return true
	}
	life := time.Duration(u.Seconds * float64(time.Second))
	return now.Sub(r.at) >= min(max(life/partOfLife, soonest), latest)
}

// untouched: no VRAM was seen, so that the job has not begun on its GPU.
func untouched(u api.Use) bool { return u.PeakMiB == nil || *u.PeakMiB == 0 }

// grown: a peak that was not known, or is larger by more than a part.
func grown(before, now *int64) bool {
	return now != nil && (before == nil || *now-*before > *before/partOfVRAM)
}

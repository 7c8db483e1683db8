package layouts

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// How long an open, idle device waits for the work for which it is kept, before that work counts no
// more: longer than a count of what waits is old. Then it rests for twice the unit, and longer.
const (
	offer    = 10 * time.Minute
	restUnit = time.Hour
	// longestStep is the most time between two looks that counts.
	longestStep = 2 * time.Minute
)

// offers are the devices that wait for work: a job that can never start keeps none without end.
type offers struct {
	// at is the time of the last look. idle is for how long a device has stood idle while work waited
	// for it, less the time in which it was used.
	at   time.Time
	idle map[gpu.UUID]time.Duration
	// vain are the profiles whose work did not come.
	vain backoff.Vain[string]
}

// awaited is the largest profile that work waits for, of those that are not larger than a device's own.
func (w waits) awaited(device string) (profile string) {
	for _, p := range w.profiles {
		if w.waited(p.Profile) {
			profile = p.Profile
		}
		if p.Profile == device {
			return profile
		}
	}
	return ""
}

func (w waits) waited(profile string) bool {
	return slices.ContainsFunc(w.by, func(s api.StatusDemand) bool { return s.Profile == profile && s.Jobs > 0 })
}

// look leaves out of what waits the profiles whose work did not come to devices that waited for it. Rest
// says which these are, late which have just joined them.
func (o *offers) look(n *Node, states map[gpu.UUID]gpu.MIGState, w *waits, now time.Time) (rest, late []string) {
	step := min(now.Sub(o.at), longestStep)
	w.by = slices.DeleteFunc(w.by, func(s api.StatusDemand) bool {
		rests := o.vain.Rests(s.Profile, now)
		if rests {
			rest = append(rest, s.Profile)
		}
		return rests
	})
	idle := map[gpu.UUID]time.Duration{}
	for _, g := range n.Plan.GPUs {
		for _, in := range states[g.Parent].Instances {
			u, ok := in.UUID()
			profile := w.awaited(g.Profile)
			if !ok || u != g.Device || profile == "" {
				continue
			}
			idle[u] = o.idle[u]
			switch {
			case in.Busy():
				idle[u] = max(0, idle[u]-step)
			case !n.Closed[g.UUID]:
				idle[u] += step
			}
			if idle[u] >= offer && !slices.Contains(late, profile) {
				late = append(late, profile)
			}
		}
	}
	for _, profile := range late {
		o.vain, idle = o.vain.Note(profile, now, restUnit), nil
	}
	o.at, o.idle = now, idle
	return rest, late
}

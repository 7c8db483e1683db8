package simulate

import (
	"fmt"
	"io"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Report shows how far runs are: a bar on a terminal, else now and then a line.
type Report struct {
	*show.Progress
	policies []Policy
	done     func(Progress) float64
	// part is how far each policy is.
	part  []float64
	shown time.Time
	every time.Duration
}

// Lines are for logs, and only of runs that take long.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 30 * time.Second
)

// NewReport writes to out; done is how far a run is, 0 to 1.
func NewReport(out io.Writer, policies []Policy, done func(Progress) float64) *Report {
	p := &Report{Progress: show.NewProgress(out), policies: policies, done: done, part: make([]float64, len(policies)),
		shown: time.Now(), every: lineEvery}
	if p.Terminal {
		p.every = barEvery
	}
	return p
}

// Watch is called with how far a policy is.
func (p *Report) Watch(policy int, at Progress) {
	p.part[policy] = min(1, max(0, p.done(at)))
	if time.Since(p.shown) < p.every {
		return
	}
	p.shown = time.Now()
	all := 0.0
	for _, part := range p.part {
		all += part / float64(len(p.part))
	}
	text := fmt.Sprintf("%s: %d jobs ended, day %.1f", p.policies[policy].Name, at.Ended, at.At.Hours()/24)
	if p.Terminal {
		p.Say(show.Bar(all, barWidth) + fmt.Sprintf(" %3.0f %%  ", 100*all) + text)
	} else {
		p.Say(fmt.Sprintf("%.0f %% done; ", 100*all) + text)
	}
}

const barWidth = 30

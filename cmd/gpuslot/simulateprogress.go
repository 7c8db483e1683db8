package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
)

// progress shows how far runs are: a bar on a terminal, else now and then a line.
type progress struct {
	out      io.Writer
	terminal bool
	policies []simulate.Policy
	done     func(simulate.Progress) float64
	// part is how far each policy is.
	part  []float64
	shown time.Time
	every time.Duration
	drawn bool
}

// Lines are for logs, and only of runs that take long.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 30 * time.Second
)

func newProgress(out io.Writer, policies []simulate.Policy, done func(simulate.Progress) float64) *progress {
	p := &progress{out: out, policies: policies, done: done, part: make([]float64, len(policies)), shown: time.Now(), every: lineEvery}
	if f, ok := asFile(out); ok && isTerminal(f) {
		p.terminal, p.every = true, barEvery
	}
	return p
}

// watch is told how far a policy is.
func (p *progress) watch(policy int, at simulate.Progress) {
	p.part[policy] = min(1, max(0, p.done(at)))
	if time.Since(p.shown) < p.every {
		return
	}
	p.shown = time.Now()
	all := 0.0
	for _, part := range p.part {
		all += part / float64(len(p.part))
	}
	if !p.terminal {
		fmt.Fprintf(p.out, "%.0f %% done; %s: %d jobs ended, day %.1f\n", 100*all, p.policies[policy].Name, at.Ended, at.At.Hours()/24)
		return
	}
	p.drawn = true
	fmt.Fprint(p.out, "\r"+bar(all)+fmt.Sprintf(" %3.0f %%  %s: %d jobs ended, day %.1f", 100*all, p.policies[policy].Name, at.Ended, at.At.Hours()/24)+clearLine)
}

const barWidth = 30

func bar(part float64) string {
	full := int(part*barWidth + 0.5)
	return "[" + strings.Repeat("#", full) + strings.Repeat(" ", barWidth-full) + "]"
}

// end removes the bar.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r"+clearLine)
	}
}

package advise

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
)

const (
	// preallocated is the part of the card from which on a class whose jobs all
	// peak there seems to take what there is.
	preallocated = 0.7
	// manyUnseen is the part of jobs without a peak that makes the others doubtful.
	manyUnseen = 0.2
	// fewPart is how many near their limit are no reason to look.
	fewPart = 0.05
)

// note adds what a reader should know of a class.
func (c *Class) note(t *tally, d needs, m *model) {
	say := func(format string, args ...any) { c.Notes = append(c.Notes, fmt.Sprintf(format, args...)) }
	known := t.peaks + t.limited
	if t.unseen > 0 && float64(t.unseen) >= manyUnseen*float64(t.records) {
		say("Of %d of its %d records the VRAM peak is not known: the others may not be like them.", t.unseen, t.records)
	}
	if t.limited > 0 {
		say("%d jobs needed more VRAM than they had; "+
			"how much is not known, so they count as more than any request.", t.limited)
	}
	if t.peaks > 0 && float64(t.near) > fewPart*float64(t.peaks) {
		say("%d jobs came near their limit. Whether they failed there is not in the records: "+
			"look at their ends (VRAMLimitHit).", t.near)
	}
	if m != nil && m.memory > 0 && known >= fewest {
		if q, ok := d.quantile(0.1); ok && float64(q) >= preallocated*float64(m.memory) {
			say("Nearly all jobs take most of the card. " +
				"TensorFlow and JAX do that unless they are configured otherwise: then their need is not known (docs/users.md).")
		}
	}
	if c.Request.Whole {
		say("The request that the risk asks for does not fit a share of %s.", c.model)
	}
}

// note adds what a reader should know of the whole.
func (b *Adviser) note(a *Advice) {
	say := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	if b.twice > 0 {
		say("%d records came more than once and count once.", b.twice)
	}
	if b.folded > 0 {
		say("There are more than %d kinds of jobs; %d records of the others are summed up as one.", mostFamilies, b.folded)
	}
	if b.nameless > 0 && float64(b.nameless) >= manyUnseen*float64(b.records) {
		say("%d of %d records do not say which program the job ran, "+
			"so that different work of a user may stand in one class. Observed nodes tell it with STARTD_JOB_ATTRS "+
			"(docs/operations.md, Observe first).", b.nameless, b.records)
	}
	if len(a.ConfigLines()) > 0 && b.observed() {
		say(
			`The lines take the place of mode = "observe": take that out of the configuration. A node is observed whole or ` +
				`not at all, so write mode = "whole" for its models that have no lines here.`,
		)
	}
	b.growthPays(say)
}

// observed reports whether the site's configuration observes a node of the records.
func (b *Adviser) observed() bool {
	hosts := append(slices.Sorted(maps.Keys(b.nodes)), "")
	for _, m := range b.models {
		for _, h := range hosts {
			if b.options.Config.For(h, m.card).Mode == config.ModeObserve {
				return true
			}
		}
	}
	return false
}

// growthPays says what [growth] would save, where it is off.
func (b *Adviser) growthPays(say func(string, ...any)) {
	if b.options.Config.Growth.Retries > 0 {
		return
	}
	with := growth{2}
	r := b.options.Config.RequestVRAM
	var now, then float64
	for key, f := range b.families {
		for _, c := range f.classes(key, growth{}, r.Quantum) {
			t := c.all()
			as, err := b.offer(b.models[mostUsed(t.models)], 0)
			if err != nil || key.GPUs > 1 {
				continue
			}
			d := needsOf(t, r.Quantum, r.Minimum)
			plain, grown := d.recommend(b.options.Risk, growth{}, as.Pool, as.LargestRequest),
				d.recommend(b.options.Risk, with, as.Pool, as.LargestRequest)
			if plain.MiB == 0 || grown.MiB == 0 || grown.Held == nil {
				continue
			}
			now, then = now+plain.Cost*t.seconds.s, then+grown.Cost*t.seconds.s
		}
	}
	if now > 0 && then < (1-worthwhile)*now {
		say("With [growth] retries = %d jobs that need more run again by themselves, and requests could be smaller: "+
			"the VRAM kept for jobs would be %s less.", with.tries, percent(1-then/now))
	}
}

func whyNoFit(err error) string {
	switch {
	case errors.Is(err, errNoMemory):
		return "Not enough data: no record has the GPU's model and VRAM."
	case err != nil:
		return fmt.Sprintf("Not enough data: the GPU cannot be planned: %v.", err)
	}
	return "Not enough data: the GPU cannot be planned."
}

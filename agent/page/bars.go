package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// width of a bar in its own units; the browser stretches it.
const width = 1000

// colours is how many the style sheet has; a later slot takes the first again.
const colours = 8

// rect is a piece of a bar, from and to in parts of its width.
type rect struct {
	class, title string
	from, to     float64
}

// X and W are its place.
func (r rect) X() string { return number(r.from * width) }

// W is its width.
func (r rect) W() string { return number(max(r.to-r.from, 0) * width) }

// Class names its colour in the style sheet.
func (r rect) Class() string { return r.class }

// Title is its tool tip.
func (r rect) Title() string { return r.title }

func number(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }

// bar is a drawn bar with its text for those who do not see it.
type bar struct {
	Rects []rect
	Label string
	// Mark is the place of a line across it; empty for none.
	Mark string
}

// stack lays pieces one after the other and never beyond the end.
type stack struct {
	at    float64
	rects []rect
}

func (s *stack) put(part float64, class, title string) {
	if part <= 0 || math.IsNaN(part) {
		return
	}
	to := min(s.at+part, 1)
	s.rects = append(s.rects, rect{class, title, s.at, to})
	s.at = to
}

func colour(i int) string { return fmt.Sprintf("c%d", i%colours) }

// memoryBar is a device's VRAM by slot.
func memoryBar(d Device) bar {
	if !d.memory().Known {
		return bar{Label: "not known"}
	}
	total := float64(d.Total.Value)
	part := func(b gpu.Bytes) float64 { return float64(b) / total }
	var s stack
	var slots gpu.Bytes
	for i, slot := range d.Slots {
		if slot.Memory.Known {
			s.put(part(slot.Memory.Value), colour(i), slot.Name+": "+size(slot.Memory.Value))
			slots += slot.Memory.Value
		}
	}
	if d.Unowned.Known {
		s.put(part(d.Unowned.Value), "alien", "in no slot: "+size(d.Unowned.Value))
		slots += d.Unowned.Value
	}
	if d.Used.Value > slots {
		s.put(part(d.Used.Value-slots), "rest", "MPS servers and the driver: "+size(d.Used.Value-slots))
	}
	text := fmt.Sprintf("%s in use, %s", of(d.Used.Value, d.Total.Value), percent(d.memory().Value))
	if d.Unowned.Value > 0 {
		text += ", " + size(d.Unowned.Value) + " in no slot"
	}
	return bar{Rects: s.rects, Label: text}
}

// activityBar is a device's SM time by slot: the estimates, and the time that
// belongs to no slot. Where nothing tells the activity, it is the kernel time as a limit.
func activityBar(d Device) bar {
	if !d.Activity.Known {
		if !d.KernelTime.Known {
			return bar{Label: "not known"}
		}
		text := "at most " + percent(d.KernelTime.Value) + ": a kernel ran so long, and no source reports on how many SMs"
		return bar{Rects: []rect{{"maybe", text, 0, min(d.KernelTime.Value, 1)}}, Label: text}
	}
	var s stack
	var slots float64
	for i, slot := range d.Slots {
		if slot.Estimate.Known {
			s.put(slot.Estimate.Value, colour(i), slot.Name+": "+band(slot))
			slots += slot.Estimate.Value
		}
	}
	s.put(d.Activity.Value-slots, "rest", "of no slot: "+percent(d.Activity.Value-slots))
	return bar{Rects: s.rects, Label: percent(d.Activity.Value) + " of the SMs' time"}
}

// budgetBar is a slot's VRAM in its budget.
func budgetBar(i int, s Slot) bar {
	switch {
	case !s.Memory.Known:
		return bar{Label: "not known"}
	case s.Budget == 0:
		return bar{Label: size(s.Memory.Value)}
	}
	part := float64(s.Memory.Value) / float64(s.Budget)
	class := colour(i)
	if part > 1 {
		class = "over"
	}
	var out stack
	out.put(part, class, "")
	return bar{Rects: out.rects, Label: of(s.Memory.Value, s.Budget)}
}

// bandBar is a slot's SM time: certain up to the lower bound, possible up to
// the upper one, and a line at the estimate.
func bandBar(i int, s Slot) bar {
	b := bar{Label: band(s)}
	if s.Lower.Known {
		b.Rects = append(b.Rects, rect{colour(i), "", 0, min(s.Lower.Value, 1)})
	}
	if s.Upper.Known {
		b.Rects = append(b.Rects, rect{"maybe " + colour(i), "", s.Lower.Value, min(s.Upper.Value, 1)})
	}
	if s.Estimate.Known {
		b.Mark = number(min(s.Estimate.Value, 1) * width)
	}
	return b
}

// band is a slot's SM time in words.
func band(s Slot) string {
	lower, upper := percent(s.Lower.Value), percent(s.Upper.Value)
	switch {
	case !s.Upper.Known:
		return "not known"
	case !s.Lower.Known:
		return "at most " + upper
	case lower == upper:
		return upper
	case !s.Estimate.Known:
		return lower + " to " + upper
	}
	return fmt.Sprintf("%s to %s, about %s", lower, upper, percent(s.Estimate.Value))
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// size is an amount of memory for people.
func size(b gpu.Bytes) string {
	if b < 1<<30 {
		return fmt.Sprintf("%d MiB", b>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30))
}

// of is a part of an amount.
func of(part, all gpu.Bytes) string {
	if all < 1<<30 {
		return fmt.Sprintf("%d of %d MiB", part>>20, all>>20)
	}
	return fmt.Sprintf("%.1f of %.1f GiB", float64(part)/(1<<30), float64(all)/(1<<30))
}

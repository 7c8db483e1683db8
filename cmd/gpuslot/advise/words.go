package advise

import (
	"fmt"
	"strconv"
	"strings"
)

// Sentence is a statement for people, with what it is about in a word.
type Sentence struct{ About, Text string }

// String is the key in one line: user, group, program, batch, GPUs.
func (k Key) String() string {
	parts := []string{orUnknown(k.User)}
	for _, p := range []string{k.Group, k.Program, k.Batch} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if k.GPUs > 1 {
		parts = append(parts, fmt.Sprintf("%d GPUs", k.GPUs))
	}
	return strings.Join(parts, " · ")
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}

// Sentences explain a class's advice.
func (c *Class) Sentences() []Sentence {
	out := []Sentence{{"VRAM", c.vram()}}
	add := func(about, text string) {
		if text != "" {
			out = append(out, Sentence{about, text})
		}
	}
	add("Request", c.present())
	add("Fits", c.fits())
	add("Mode", strings.TrimSpace(c.Mode.title()+" "+strings.Join(c.Mode.Why, " ")))
	add("Expected", c.expected())
	add("Bounds", c.bounds())
	add("After", c.Comparison.Text())
	add("Note", strings.Join(c.Notes, " "))
	return out
}

func (c *Class) vram() string {
	r := c.Request
	if r.MiB == 0 {
		if r.Whole {
			return fmt.Sprintf("Half of the jobs fit %d MiB, all recorded ones %d MiB; "+
				"a request that keeps the promise is larger than a share.", c.MedianMiB, c.LargestMiB)
		}
		return notEnough(r)
	}
	s := fmt.Sprintf("Half of the jobs fit %d MiB, all recorded ones %d MiB. "+
		"With request_vram = %d at most %s of the jobs need more, with %s confidence; %s of %d recorded jobs did.",
		c.MedianMiB, c.LargestMiB, r.MiB, percent(r.Risk), percent(r.Confidence), exactPercent(r.Seen), r.Jobs)
	if r.Tries > 0 {
		s += fmt.Sprintf(" These run again with more, up to %s;", times(r.Tries))
		switch {
		case r.Held != nil:
			s += fmt.Sprintf(" at most %s of the jobs need more than that as well.", percent(*r.Held))
		default:
			s += " how many need more than that as well the jobs are too few to tell."
		}
		if r.CostWithout != nil {
			s += fmt.Sprintf(" A job then keeps %s of the GPU's VRAM, second tries included; %s without growth.",
				percent(r.Cost), percent(*r.CostWithout))
		}
	}
	return s
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// exactPercent shows small parts.
func exactPercent(part float64) string {
	if part > 0 && part < 0.095 {
		return fmt.Sprintf("%.1f %%", 100*part)
	}
	return percent(part)
}

// present judges the request that the jobs have.
func (c *Class) present() string {
	last := c.Asked[len(c.Asked)-1]
	switch c.Verdict {
	case NoRequest:
		return "The jobs say no request_vram."
	case TooSmall:
		return fmt.Sprintf("request_vram = %d is too small: more jobs need more than the risk allows.", last)
	case TooLarge:
		return fmt.Sprintf("request_vram = %d is %.1f times what is recommended.", last,
			float64(last)/float64(max(1, c.Request.MiB)))
	case JustRight:
		return fmt.Sprintf("request_vram = %d fits.", last)
	}
	return fmt.Sprintf("Whether request_vram = %d fits there is not enough data to tell.", last)
}

func (c *Class) fits() string {
	f := c.Fit
	if f == nil || f.NoMPS || c.GPUs > 1 {
		return ""
	}
	var by []string
	for _, b := range []struct {
		n    *int
		what string
	}{{f.ByVRAM, "by VRAM"}, {f.BySM, "by SM activity"}, {f.ByMemoryTraffic, "by memory traffic"},
		{f.ByHost, "by the node's CPUs and memory"}} {
		if b.n != nil && *b.n < mostShares {
			by = append(by, fmt.Sprintf("%d %s", *b.n, b.what))
		}
	}
	s := fmt.Sprintf("The plan offers %s on a %s.", count(f.Shares, "share", "shares"), f.Model)
	if len(by) > 0 {
		s = strings.ToUpper(by[0][:1]) + strings.Join(by, ", ")[1:] + ". " + s
	}
	if f.DefaultServes != nil {
		s += fmt.Sprintf(" A job that takes one share's default gets %d MiB there, enough for %s of the recorded ones.",
			f.DefaultMiB, percent(*f.DefaultServes))
	}
	return s
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// title names the mode.
func (m Mode) title() string {
	switch m.Kind {
	case MPS:
		return fmt.Sprintf("MPS, %d on a GPU.", m.Jobs)
	case TimeSlice:
		return fmt.Sprintf("Time slices, %d on a GPU.", m.Jobs)
	case MIG:
		return fmt.Sprintf("MIG, %d devices of %s on a GPU.", m.Jobs, m.Profile)
	case Whole:
		return "Whole GPUs."
	}
	if len(m.Why) > 0 && strings.HasPrefix(m.Why[0], notEnoughData) {
		return ""
	}
	return notEnoughData + "."
}

func (c *Class) expected() string {
	e := c.Expect
	if e.PerGPUAfter.Expected == nil || e.PerGPUNow.Expected == nil || c.Mode.Kind == Whole {
		return ""
	}
	s := fmt.Sprintf("%s jobs in a day of a GPU instead of %s.", e.PerGPUAfter.Text(), Number(*e.PerGPUNow.Expected))
	switch {
	case e.KWhAfter.Expected != nil && e.KWhNow.Expected != nil:
		s += fmt.Sprintf(" %s kWh a job instead of %s.", e.KWhAfter.Text(), Number(*e.KWhNow.Expected))
	case e.KWhAfter.High != nil && e.KWhNow.Expected != nil:
		s += fmt.Sprintf(" Between %s and %s kWh a job instead of %s: what an idle GPU draws is not known.",
			Number(*e.KWhAfter.Low), Number(*e.KWhAfter.High), Number(*e.KWhNow.Expected))
	default:
		s += " Energy: not enough data."
	}
	return s
}

// bounds says what the bounds of the expected throughput assume.
func (c *Class) bounds() string {
	if c.expected() == "" {
		return ""
	}
	host := ""
	if c.Fit.cpus > 0 {
		host = " and the second thread of a core adds nothing"
	}
	if c.Mode.Kind == MIG {
		return fmt.Sprintf("Expected: half-way. At the least its kernels fill the GPU%s. "+
			"At the most they are small, and %d devices slow no job down.", host, c.Mode.Jobs)
	}
	if c.Mode.Kind == TimeSlice {
		return "Expected: kernels meet at random. At the least small kernels keep the GPU all the time, and sharing " +
			"gains nothing. At the most none waits while there is room."
	}
	return fmt.Sprintf("Expected: kernels meet at random. At the least each waits for one of every other job%s. "+
		"At the most none waits while there is room.", host)
}

// Text is a number with its bounds: "5.2 (4.1 to 7)"; "-" if it is not known.
func (r Range) Text() string {
	switch {
	case r.Expected != nil && r.Low != nil && r.High != nil && Number(*r.Low) != Number(*r.High):
		return fmt.Sprintf("%s (%s to %s)", Number(*r.Expected), Number(*r.Low), Number(*r.High))
	case r.Expected != nil:
		return Number(*r.Expected)
	case r.Low != nil && r.High != nil:
		return fmt.Sprintf("%s to %s", Number(*r.Low), Number(*r.High))
	case r.High != nil:
		return "at most " + Number(*r.High)
	}
	return "-"
}

// Number prints three digits, or all before the point.
func Number(v float64) string {
	switch a := max(v, -v); {
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1 || a == 0:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), ".00")
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// Text says what a change brought; empty if there was none.
func (c *Comparison) Text() string {
	switch {
	case c == nil:
		return ""
	case !c.Enough:
		return fmt.Sprintf("Not enough data to compare: %s before the change and %s after it; %d each are needed.",
			count(c.Before.Jobs, "job", "jobs"), count(c.After.Jobs, "job", "jobs"), fewestCompared)
	}
	s := fmt.Sprintf("Jobs in a day of a reserved GPU: %s times as many as before the change.", c.PerGPUDay.Text())
	if c.Minutes.Expected != nil {
		s += fmt.Sprintf(" Run time: %s times.", c.Minutes.Text())
	}
	if c.KWh.Expected != nil {
		s += fmt.Sprintf(" Energy of a job: %s times.", c.KWh.Text())
	}
	if n := c.After.Limited; n > 0 {
		s += fmt.Sprintf(" %d jobs needed more VRAM than they had.", n)
	}
	return s
}

package paper

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/agent/advise"
)

// The measures of a plot of a class.
const (
	plotWidth, plotHeight   = 520, 190
	left, right, under, top = 46, 24, 34, 18
)

// frame draws the axes of a plot; y has its ticks, x its labels.
func frame(title string, y axis, unit string) drawing {
	d := drawing{Title: title, W: plotWidth, H: plotHeight}
	for _, v := range y.ticks() {
		at := plotHeight - under - y.at(v)
		d.grid(left, at, plotWidth-right, at)
		d.text("tick end", left-6, at+4, round(v))
	}
	d.text("tick", 2, 10, unit)
	return d
}

func inside() (width, height float64) { return plotWidth - left - right, plotHeight - under - top }

// mostBars is how many bars the distribution has at most.
const mostBars = 52

// peaks is the distribution of the jobs' largest VRAM with the recommended
// request and the present one.
func peaks(c *advise.Class) drawing {
	w, h := inside()
	last := c.Asked[len(c.Asked)-1]
	bars, begin, size, end := binned(c.Peaks, c.StepMiB, max(c.Request.MiB, last), c.Request.MiB)
	most := 0
	for _, n := range bars {
		most = max(most, n)
	}
	x, y := axis{float64(end), w}, axisOf(float64(most), h)
	d := frame("Largest VRAM of each job", y, "jobs")
	for i, n := range bars {
		from, class := begin+int64(i)*size, "bar"
		if c.Request.MiB > 0 && from >= c.Request.MiB {
			class = "bar over"
		}
		start, to := x.at(float64(from)), x.at(float64(from+size))
		d.rect(class, left+start+0.5, plotHeight-under-y.at(float64(n)), to-start-1, y.at(float64(n)), fmt.Sprintf("%d jobs, above %s up to %s", n, gib(max(0, from)), gib(from+size)))
	}
	for _, v := range (axis{float64(end) / 1024, w}).ticks() {
		d.text("tick middle", left+x.at(v*1024), plotHeight-under+16, round(v))
	}
	d.text("tick end", plotWidth-right, plotHeight-4, "GiB")
	d.Label = fmt.Sprintf("Half of the jobs peak at or below %s, the largest at or below %s", gib(c.MedianMiB), gib(c.LargestMiB))
	mark := func(class string, mib int64, name string) {
		if mib <= 0 {
			return
		}
		at := left + x.at(float64(mib))
		d.line(class, at, top-6, at, plotHeight-under)
		d.Keys = append(d.Keys, key{class, name + " " + gib(mib)})
		d.Label += "; " + name + " " + gib(mib)
	}
	mark("advised", c.Request.MiB, "recommended request")
	if last != c.Request.MiB {
		mark("present", last, "present request")
	}
	if c.Request.MiB > 0 && c.Request.Seen > 0 {
		d.Keys = append(d.Keys, key{"bar over", fmt.Sprintf("jobs above it: %.1f %%", 100*c.Request.Seen)})
	}
	return d
}

// binned joins budgets to bars of one size, of which one ends at the request. The
// first bar begins at from, which may be below 0.
func binned(ps []advise.Peak, step, atLeast, request int64) (bars []int, from, size, end int64) {
	end = max(atLeast, 1024)
	if len(ps) > 0 {
		end = max(ps[len(ps)-1].MiB, end)
	}
	size = max(step, 1)
	for end/size > mostBars {
		size *= 2
	}
	end = (end/size + 2) * size
	from = (request%size - size) % size
	bars = make([]int, (end-from)/size+1)
	for _, p := range ps {
		bars[max(0, (p.MiB-1-from)/size)] += p.Jobs
	}
	return bars, from, size, end
}

// life is the VRAM over a job's life.
func life(c *advise.Class) (drawing, bool) {
	if c.Curve == nil {
		return drawing{}, false
	}
	w, h := inside()
	var most int64
	for _, v := range c.Curve.High {
		most = max(most, v)
	}
	y := axisOf(float64(most)/1024, h)
	d := frame("VRAM over a job's life", y, "GiB")
	n := len(c.Curve.Middle)
	place := func(i int, mib int64) string {
		return fmt.Sprintf("%s %s", number(left+(float64(i)+0.5)/float64(n)*w), number(plotHeight-under-y.at(float64(mib)/1024)))
	}
	var line, up, down strings.Builder
	command := "M"
	for i := range n {
		if c.Curve.Middle[i] < 0 {
			command = "M"
			continue
		}
		line.WriteString(command + place(i, c.Curve.Middle[i]))
		command = "L"
	}
	command = "M"
	for i := range n {
		if c.Curve.Low[i] < 0 {
			continue
		}
		up.WriteString(command + place(i, c.Curve.High[i]))
		command = "L"
		j := n - 1 - i
		if c.Curve.Low[j] >= 0 {
			down.WriteString("L" + place(j, c.Curve.Low[j]))
		}
	}
	d.Paths = append(d.Paths, path{"band", up.String() + down.String() + "Z"}, path{"middle-line", line.String()})
	for _, v := range []float64{0, 25, 50, 75, 100} {
		d.text("tick middle", left+v/100*w, plotHeight-under+16, round(v)+" %")
	}
	d.Label = fmt.Sprintf("The median of %d jobs, and the middle half of them", c.Curve.Jobs)
	d.Keys = []key{{"middle-line", "median job"}, {"band", fmt.Sprintf("middle half of %d jobs", c.Curve.Jobs)}}
	return d, true
}

// The measures of a row of bars.
const (
	rowsWidth, rowHeight, rowName = 1060, 26, 250
)

// mostUsers is how many users have a bar; the others are told in a line.
const mostUsers = 14

// hours is a bar for each user: what was reserved, and what of it was used.
func hours(users []advise.User) drawing {
	users, rest := fewer(users)
	x := axisOf(users[0].Reserved, rowsWidth-rowName-130) // the largest is first
	d := drawing{Title: "Reserved and used GPU-hours by user", W: rowsWidth, H: len(users)*rowHeight + 28}
	d.Keys = []key{{"track", "reserved"}, {"bar", "used"}}
	for _, v := range x.ticks() {
		at := rowName + x.at(v)
		d.grid(at, 0, at, float64(d.H-24))
		d.text("tick middle", at, float64(d.H-8), grouped(round(v)))
	}
	var said []string
	var possible, unknown bool
	for i, u := range users {
		name, used := orUnknown(u.User), d.user(u, x, float64(i*rowHeight))
		possible, unknown = possible || value(u.Used.High) > used, unknown || u.Unknown > 0
		said = append(said, fmt.Sprintf("%s %s of %s", name, u.Used.Text(), advise.Number(u.Reserved)))
	}
	if possible {
		d.Keys = append(d.Keys, key{"bar maybe", "perhaps used: bounds"})
	}
	if unknown {
		d.Keys = append(d.Keys, key{"hatch", "use not known"})
	}
	if rest.Jobs > 0 {
		d.Keys = append(d.Keys, key{"", fmt.Sprintf("%s: %s GPU-hours%s", rest.User, large(rest.Reserved), usedOf(rest))})
	}
	d.Label = "Used of reserved GPU-hours: " + strings.Join(said, "; ")
	return d
}

// user draws one bar, and returns how much of it is certainly used.
func (d *drawing) user(u advise.User, x axis, y float64) (used float64) {
	name := orUnknown(u.User)
	low, high := value(u.Used.Low), value(u.Used.High)
	if u.Used.Low == nil && u.Used.Expected != nil {
		low = *u.Used.Expected
	}
	bar := func(class string, from, wide float64, title string) {
		d.rect(class, rowName+x.at(from), y+4, x.at(from+wide)-x.at(from), rowHeight-8, name+": "+title)
	}
	d.text("name", 0, y+17, clipped(name))
	bar("track", 0, u.Reserved, "reserved "+large(u.Reserved)+" GPU-hours")
	bar("bar", 0, low, "used at least "+large(low))
	bar("bar maybe", low, high-low, "used at most "+large(high))
	bar("hatch", u.Reserved-u.Unknown, u.Unknown, "use of "+large(u.Unknown)+" not known")
	d.text("tick", rowName+x.at(u.Reserved)+8, y+17, large(u.Reserved)+usedOf(u))
	return low
}

// usedOf is the used part of what a user reserved, where it is known.
func usedOf(u advise.User) string {
	if u.Used.Expected == nil || u.Reserved <= u.Unknown {
		return ""
	}
	return fmt.Sprintf(" · %.0f %% used", 100**u.Used.Expected/(u.Reserved-u.Unknown))
}

func orUnknown(name string) string {
	if name == "" {
		return "(unknown)"
	}
	return name
}

func value(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// clipped is a name that fits its column.
func clipped(s string) string {
	if r := []rune(s); len(r) > 32 {
		return string(r[:31]) + "…"
	}
	return s
}

// fewer sums the last users up.
func fewer(users []advise.User) (shown []advise.User, rest advise.User) {
	if len(users) <= mostUsers {
		return users, rest
	}
	shown = users[:mostUsers]
	rest.User = fmt.Sprintf("and %d others", len(users)-len(shown))
	for _, u := range users[len(shown):] {
		rest.Jobs += u.Jobs
		rest.Reserved += u.Reserved
		rest.Unknown += u.Unknown
		rest.Used = added(rest.Used, u.Used)
	}
	return shown, rest
}

func added(a, b advise.Range) advise.Range {
	add := func(a, b *float64) *float64 {
		if a == nil || b == nil {
			if a == nil {
				return b
			}
			return a
		}
		v := *a + *b
		return &v
	}
	return advise.Range{Low: add(a.Low, b.Low), Expected: add(a.Expected, b.Expected), High: add(a.High, b.High)}
}

// step is one bar of before and after.
type step struct {
	name, class string
	r           advise.Range
}

// steps draws bars with the bounds of each.
func steps(title, unit string, of []step) (drawing, bool) {
	most := 0.0
	var known []step
	for _, s := range of {
		if s.r.Expected != nil || s.r.High != nil {
			known = append(known, s)
			most = max(most, value(s.r.Expected), min(value(s.r.High), 3*max(value(s.r.Expected), value(s.r.Low))))
		}
	}
	if len(known) < 2 {
		return drawing{}, false
	}
	const name, row = 116, 34
	d := drawing{Title: title, W: plotWidth, H: len(known)*row + 30}
	x := axisOf(most, plotWidth-name-right-56)
	for _, v := range x.ticks() {
		d.grid(name+x.at(v), 0, name+x.at(v), float64(d.H-26))
		d.text("tick middle", name+x.at(v), float64(d.H-10), round(v))
	}
	d.text("tick end", plotWidth-2, float64(d.H-10), unit)
	var said []string
	for i, s := range known {
		y := float64(i * row)
		d.text("name", 0, y+20, s.name)
		d.rect(s.class, name, y+6, x.at(value(s.r.Expected)), row-14, s.name+": "+s.r.Text())
		if s.r.Low != nil && s.r.High != nil && *s.r.High > *s.r.Low {
			m := y + 6 + (row-14)/2
			d.line("whisker", name+x.at(*s.r.Low), m, name+x.at(*s.r.High), m)
			d.line("whisker", name+x.at(*s.r.Low), m-5, name+x.at(*s.r.Low), m+5)
			d.line("whisker", name+x.at(*s.r.High), m-5, name+x.at(*s.r.High), m+5)
		}
		if s.r.Expected != nil {
			d.text("tick", name+max(x.at(*s.r.Expected), x.at(value(s.r.High)))+6, y+20, advise.Number(*s.r.Expected))
		}
		said = append(said, s.name+" "+s.r.Text())
	}
	d.Label = strings.Join(said, "; ")
	return d, true
}

package paper

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
)

// The measures of a row of bars.
const (
	rowsWidth, rowHeight, rowName = 1060, 26, 250
)

// mostUsers is how many users have a bar; the others are summed up in a line.
const mostUsers = 14

// hours is a bar for each user or group: what was reserved, and what of it was used.
func hours(title string, users []advise.User) drawing {
	users, rest := fewer(users)
	x := axisOf(users[0].Reserved, rowsWidth-rowName-130) // the largest is first
	d := drawing{Title: title, W: rowsWidth, H: len(users)*rowHeight + 28}
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

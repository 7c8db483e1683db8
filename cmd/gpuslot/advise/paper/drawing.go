package paper

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
)

// drawing is a picture in SVG; the page's style gives its classes their colours.
type drawing struct {
	Title, Label string
	W, H         int
	// Grid is drawn first, then rectangles, paths and texts.
	Grid  []path
	Rects []rect
	Paths []path
	Texts []text
	// Keys explain the classes below it.
	Keys []key
}

type rect struct{ Class, X, Y, W, H, Title string }

type path struct{ Class, D string }

type text struct{ Class, X, Y, Text string }

type key struct{ Class, Text string }

func (d *drawing) rect(class string, x, y, w, h float64, title string) {
	if w > 0 && h > 0 {
		d.Rects = append(d.Rects, rect{class, number(x), number(y), number(w), number(h), title})
	}
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.Paths = append(d.Paths, path{class, fmt.Sprintf("M%s %sL%s %s", number(x1), number(y1), number(x2), number(y2))})
}

func (d *drawing) grid(x1, y1, x2, y2 float64) {
	d.Grid = append(d.Grid, path{"grid", fmt.Sprintf("M%s %sL%s %s", number(x1), number(y1), number(x2), number(y2))})
}

func (d *drawing) text(class string, x, y float64, s string) {
	d.Texts = append(d.Texts, text{class, number(x), number(y), s})
}

func number(f float64) string { return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") }

// axis maps 0 to top onto a length.
type axis struct{ top, length float64 }

func (a axis) at(v float64) float64 { return min(max(v, 0), a.top) / a.top * a.length }

// axisOf ends at a round number that leaves room above the largest value.
func axisOf(most, length float64) axis {
	if most <= 0 {
		return axis{1, length}
	}
	step := stepOf(most)
	return axis{step * math.Ceil(most/step-1e-9), length}
}

// stepOf divides an axis into about four by a round number.
func stepOf(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, k := range []float64{1, 2, 2.5, 5} {
		if most/(k*unit) <= 5 {
			return k * unit
		}
	}
	return 10 * unit
}

// ticks are from 0 to the top.
func (a axis) ticks() []float64 {
	var out []float64
	step := stepOf(a.top)
	for v := 0.0; v <= a.top*1.0001; v += step {
		out = append(out, v)
	}
	return out
}

// round prints a tick.
func round(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

// grouped divides the digits of a large number by threes.
func grouped(n string) string {
	whole, rest, _ := strings.Cut(n, ".")
	if len(whole) < 5 || strings.Trim(whole, "0123456789") != "" {
		return n
	}
	var b strings.Builder
	for i, c := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteString("\u202f") // narrow, and never a line's end
		}
		b.WriteRune(c)
	}
	if rest != "" {
		b.WriteString("." + rest)
	}
	return b.String()
}

// large prints an amount.
func large(v float64) string { return grouped(advise.Number(v)) }

// gib prints an amount of MiB.
func gib(mib int64) string {
	if mib%1024 == 0 || mib >= 10240 {
		return round(math.Round(float64(mib)/102.4)/10) + " GiB"
	}
	return strconv.FormatInt(mib, 10) + " MiB"
}

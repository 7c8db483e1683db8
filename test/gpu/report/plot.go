package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
)

// series is one line of a plot.
type series struct {
	name   string
	points []at
}

// at is a point with what it lies between.
type at struct {
	x           float64
	y, min, max float64
}

// plots are those of all results, by file name.
func plots(results []Sharing) map[string]string {
	out := map[string]string{}
	for _, r := range results {
		points := r.Points()
		alone, known := bench.Alone(points)
		draw := func(title string, lines []series) string {
			return plot(r.Label+": "+title+marked(r.Simulated), "copies on one GPU", lines)
		}
		out[r.Label+"-runtime.svg"] = draw("run time of a copy [s]", seriesOf(points, func(p bench.Point) *bench.Spread { return &p.JobSeconds }))
		out[r.Label+"-throughput.svg"] = draw("throughput against one after the other", seriesOf(points, func(p bench.Point) *bench.Spread {
			g, ok := bench.Ratio(p.PerHour, alone.PerHour)
			if !known || !ok {
				return nil
			}
			return &g
		}))
		out[r.Label+"-occupancy.svg"] = draw("occupancy: part of the time with any kernel", seriesOf(points, func(p bench.Point) *bench.Spread { return p.KernelTime }))
		out[r.Label+"-energy.svg"] = draw("energy of a job, GPU alone [J]", seriesOf(points, func(p bench.Point) *bench.Spread { return p.Joules }))
	}
	return out
}

func seriesOf(points []bench.Point, value func(bench.Point) *bench.Spread) (out []series) {
	for _, p := range points {
		v := value(p)
		if p.Repeats == 0 || v == nil {
			continue
		}
		i := slices.IndexFunc(out, func(s series) bool { return s.name == name(p) })
		if i < 0 {
			out = append(out, series{name: name(p)})
			i = len(out) - 1
		}
		out[i].points = append(out[i].points, at{float64(p.Copies), v.Median, v.Min, v.Max})
	}
	return out
}

// The plot's measures in pixels.
const (
	width, height           = 460, 300
	left, right, top, below = 56, 110, 34, 40
)

// colours of Okabe and Ito, which all people can tell apart.
var colours = []string{"#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// plot draws lines over what across says, with a bar from the least to the most of
// the repeats.
func plot(title, across string, lines []series) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><text x="%d" y="16" font-size="12">%s</text>`+"\n", width, height, left, escape(title))
	most, high := 1.0, 0.0
	for _, l := range lines {
		for _, p := range l.points {
			most, high = max(most, p.x), max(high, p.max)
		}
	}
	step := tick(high)
	high = step * math.Max(1, math.Ceil(high/step))
	x := func(v float64) float64 { return left + v/most*(width-left-right) }
	y := func(v float64) float64 { return height - below - v/high*(height-top-below) }
	for v := 0.0; v <= high+step/2; v += step {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n", left, y(v), width-right, left-6, y(v)+4, v)
	}
	for _, v := range places(lines) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(v), height-below+16, v)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(most/2), height-8, escape(across))
	for i, l := range lines {
		l.draw(&b, colours[i%len(colours)], i, x, y)
	}
	if len(lines) == 0 {
		fmt.Fprintf(&b, `<text x="%d" y="%d">not measured</text>`+"\n", left+20, height/2)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (l series) draw(b *strings.Builder, colour string, i int, x, y func(float64) float64) {
	var path strings.Builder
	for k, p := range l.points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(k, 1)], x(p.x), y(p.y))
	}
	fmt.Fprintf(b, `<g stroke="%s" fill="none"><path d="%s"/>`, colour, path.String())
	for _, p := range l.points {
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f"/><circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, x(p.x), y(p.min), y(p.max), x(p.x), y(p.y), colour)
	}
	fmt.Fprintf(b, `</g><text x="%d" y="%d" fill="%s">%s</text>`+"\n", width-right+10, top+10+15*i, colour, escape(l.name))
}

func marked(simulated bool) string {
	if simulated {
		return " (SIMULATED)"
	}
	return ""
}

// places are the values across that any line has.
func places(lines []series) (out []float64) {
	for _, l := range lines {
		for _, p := range l.points {
			if !slices.Contains(out, p.x) {
				out = append(out, p.x)
			}
		}
	}
	slices.Sort(out)
	return out
}

// tick is a round step of which four to ten make up the height.
func tick(high float64) float64 {
	if high <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(high)))
	for _, part := range []float64{0.1, 0.2, 0.25, 0.5} {
		if high/(unit*part) <= 10 {
			return unit * part
		}
	}
	return unit
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

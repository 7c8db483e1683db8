package paper

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
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
		d.rect(class, left+start+0.5, plotHeight-under-y.at(float64(n)), to-start-1, y.at(float64(n)),
			fmt.Sprintf("%d jobs, above %s up to %s", n, gib(max(0, from)), gib(from+size)))
	}
	for _, v := range (axis{float64(end) / 1024, w}).ticks() {
		d.text("tick middle", left+x.at(v*1024), plotHeight-under+16, round(v))
	}
	d.text("tick end", plotWidth-right, plotHeight-4, "GiB")
	d.Label = fmt.Sprintf("Half of the jobs peak at or below %s, the largest at or below %s", gib(c.MedianMiB),
		gib(c.LargestMiB))
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
		return fmt.Sprintf("%s %s", number(left+(float64(i)+0.5)/float64(n)*w),
			number(plotHeight-under-y.at(float64(mib)/1024)))
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

package page

import (
	"fmt"
	"math"
	"strings"
)

// plot is an hour of one quantity.
type plot struct {
	Title string
	// Path is the line, Area what is below it.
	Path, Area string
	// Now is the last point, Top the end of the axis.
	Now, Top string
	Label    string
}

// plotHeight is in the plot's own units; one point is one unit wide.
const plotHeight = 40

// draw makes a plot whose axis begins at 0. Unknown points are gaps.
func draw(title string, s series, top float64, text func(float64) string) plot {
	var line, area strings.Builder
	begin, least, most, now := -1, math.Inf(1), math.Inf(-1), "–"
	for i, v := range s {
		if !v.Known {
			if begin >= 0 {
				closeArea(&area, begin, i-1)
				begin = -1
			}
			continue
		}
		y := number(plotHeight * (1 - min(v.Value/top, 1)))
		if begin < 0 {
			fmt.Fprintf(&line, "M%d %sh.1", i, y) // a lone point is seen, too
			fmt.Fprintf(&area, "M%d %s", i, y)
			begin = i
		} else {
			fmt.Fprintf(&line, "L%d %s", i, y)
			fmt.Fprintf(&area, "L%d %s", i, y)
		}
		least, most, now = min(least, v.Value), max(most, v.Value), text(v.Value)
	}
	p := plot{Title: title, Now: now, Top: text(top), Label: title + " in the last hour: not known"}
	if begin >= 0 {
		closeArea(&area, begin, points-1)
	}
	p.Path, p.Area = line.String(), area.String()
	if most >= least {
		p.Label = fmt.Sprintf("%s in the last hour: %s to %s, last %s; the axis ends at %s", title, text(least), text(most),
			now, text(top))
	}
	return p
}

func closeArea(w *strings.Builder, begin, end int) {
	fmt.Fprintf(w, "L%d %dL%d %dZ", end, plotHeight, begin, plotHeight)
}

// roof is the next hundred above every value of a series, 100 at least.
func roof(s series) float64 {
	top := 100.0
	for _, v := range s {
		if v.Known {
			top = max(top, 100*math.Ceil(v.Value/100))
		}
	}
	return top
}

func watts(w float64) string { return fmt.Sprintf("%.0f W", w) }

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Winner is the best of all points by one measure, exclusive use among them.
type Winner struct {
	// By is "throughput", "energy" or "p95 latency".
	By string
	// Name is the point's, Value its value with the unit, Alone that of one job after the other.
	Name, Value, Alone string
	// Also are points that the spread of the repeats does not tell apart from it.
	Also []string
}

// Winners are the best by throughput, by energy and by the 95th percentile of latency. Energy
// is left out where it was not measured, latency where no two copies ran at once.
func Winners(points []Point) []Winner {
	points = slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Repeats == 0 })
	alone, ok := Alone(points)
	if !ok || len(points) < 2 {
		return nil
	}
	var out []Winner
	add := func(by, format string, higher bool, value func(Point) *Spread) {
		if w, ok := winner(points, value, higher); ok {
			w.By, w.Value, w.Alone = by, fmt.Sprintf(format, value(w.point).Median), "-"
			if v := value(alone); v != nil {
				w.Alone = fmt.Sprintf(format, v.Median)
			}
			out = append(out, w.Winner)
		}
	}
	add("throughput", "%.0f jobs/h", true, func(p Point) *Spread { return &p.PerHour })
	add("energy", "%.0f J a job", false, func(p Point) *Spread { return p.Joules })
	if n := mostCopies(points); n > 1 {
		add("p95 latency", fmt.Sprintf("%%.2f s of %d jobs at once", n), false, func(p Point) *Spread { return p.latency(n) })
	}
	return out
}

type ranked struct {
	Winner
	point Point
}

// winner is the point with the best median.
func winner(points []Point, value func(Point) *Spread, higher bool) (ranked, bool) {
	best := -1
	for i, p := range points {
		v := value(p)
		if v == nil || v.N == 0 {
			continue
		}
		if best < 0 || (v.Median > value(points[best]).Median) == higher && v.Median != value(points[best]).Median {
			best = i
		}
	}
	if best < 0 {
		return ranked{}, false
	}
	out := ranked{point: points[best]}
	out.Name = out.point.name()
	top := value(out.point)
	for i, p := range points {
		if v := value(p); i != best && v != nil && v.N > 0 && v.Max >= top.Min && v.Min <= top.Max {
			out.Also = append(out.Also, p.name())
		}
	}
	return out, true
}

// mostCopies is the number of copies that most modes and profiles were measured with, the
// largest of equals; 0 if none ran with two.
func mostCopies(points []Point) int {
	of := map[int]int{}
	for _, p := range points {
		if p.Copies > 1 {
			of[p.Copies]++
		}
	}
	best := 0
	for n, count := range of {
		if count > of[best] || count == of[best] && n > best {
			best = n
		}
	}
	return best
}

// latency is the 95th percentile of the time from the start to the end of n jobs that come
// at once. Exclusive use runs them one after the other: the later ones wait.
func (p Point) latency(n int) *Spread {
	switch {
	case p.Mode == Exclusive:
		var ends []float64
		for i := range n {
			ends = append(ends, float64(i+1))
		}
		k := Quantile(ends, 0.95)
		return &Spread{p.JobSeconds.Min * k, p.JobSeconds.Median * k, p.JobSeconds.Max * k, p.JobSeconds.N}
	case p.Copies == n:
		return &Spread{p.P95, p.P95, p.P95, p.JobSeconds.N}
	}
	return nil
}

func printWinners(b *strings.Builder, points []Point) {
	for i, w := range Winners(points) {
		if i == 0 {
			b.WriteString("Best of all modes:\n")
		}
		also := ""
		if len(w.Also) > 0 {
			also = "; within the spread: " + strings.Join(w.Also, ", ")
		}
		fmt.Fprintf(b, "  %-11s %s: %s (one after the other: %s)%s\n", w.By, w.Name, w.Value, w.Alone, also)
	}
}

package simulate

import (
	"bytes"
	_ "embed"
	"html/template"
	"math"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// chart is one plot: a horizontal bar for each policy.
type chart struct {
	Title, Note string
	Bars        []bar
	Height      int
}

// bar is one policy's value, drawn from 0 to Width of barSpace; Low and High are where its
// bounds are drawn, both 0 if it has none.
type bar struct {
	Policy, Text     string
	Y, Width         int
	Low, Span, Known int
}

// In pixels: what the longest bar takes, and one row.
const (
	barSpace = 350
	rowSpace = 26
)

// HTML is a page with plots of the results, for screens and paper, and with their table.
func HTML(results []Result) ([]byte, error) {
	table := [][]string{columns}
	for _, r := range results {
		table = append(table, r.row())
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		Charts []chart
		Table  [][]string
		Notes  []string
	}{charts(results), table, notes(results)})
	return out.Bytes(), err
}

func charts(results []Result) []chart {
	interval := func(i *Interval) []float64 {
		if i == nil {
			return nil
		}
		return []float64{i.Expected, i.Low, i.High}
	}
	started := func(r Result, v float64) []float64 {
		if r.Started == 0 {
			return nil
		}
		return []float64{v}
	}
	hours := func(r Result) []float64 { return started(r, r.Wait.P95/3600) }
	return []chart{
		draw("GAIN", "work at full load, by that of the first policy; the line has its bounds", "times", results,
			func(r Result) []float64 { return interval(r.Gain) }),
		draw("WAIT, 95th percentile", "hours from submission to start", "h", results, hours),
		draw("SMS", "part of the multiprocessors at work", "%", results, func(r Result) []float64 { return []float64{r.SM} }),
		draw("VRAM", "part of the memory given to jobs", "%", results, func(r Result) []float64 { return []float64{r.VRAM} }),
		draw("ENERGY", "of a job, by that of the first policy; the line has its bounds", "times", results,
			func(r Result) []float64 { return interval(r.Energy) }),
	}
}

// draw makes a chart of what value returns: the value, and then its bounds if it has some;
// nil where it is not known. A unit of "%" writes parts as percentages.
func draw(title, note, unit string, results []Result, value func(Result) []float64) chart {
	c := chart{Title: title, Note: note, Height: rowSpace * len(results)}
	most := 0.0
	for _, r := range results {
		for _, v := range value(r) {
			if !math.IsInf(v, 0) {
				most = max(most, v)
			}
		}
	}
	at := func(v float64) int { return int(math.Round(barSpace * min(v/max(most, 1e-9), 1))) }
	for i, r := range results {
		b := bar{Policy: r.Policy, Text: "not known", Y: i * rowSpace}
		if v := value(r); v != nil {
			b.Known, b.Width, b.Text = 1, at(v[0]), figure(v[0])+" "+unit
			if unit == "%" {
				b.Text = percent(v[0])
			}
			if len(v) == 3 {
				b.Text = (&Interval{Expected: v[0], Low: v[1], High: v[2]}).text()
			}
			if len(v) == 3 && v[1] < v[2] {
				b.Low, b.Span = at(v[1]), max(at(v[2])-at(v[1]), 1)
			}
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}

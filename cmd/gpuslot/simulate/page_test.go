package simulate

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestHTML: each chart has a bar for each policy, drawn within the plot, and what is not
// known has none.
func TestHTML(t *testing.T) {
	results := []Result{
		{Policy: "exclusive", Jobs: 10, Started: 10, Ended: 10, Gain: &Interval{1, 1, 1}, SM: .1, VRAM: 1},
		{Policy: "mps <b>", Jobs: 10, Refused: 2, Started: 10, Ended: 10, Gain: &Interval{2, 4, 5}, SM: .4, VRAM: .8, Note: "a note"},
	}
	page, err := HTML(results)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if strings.Contains(text, "<b>") || !strings.Contains(text, "a note") || !strings.Contains(text, "2 jobs fit no slot") {
		t.Errorf("names are not text, or notes are missing: %s", text)
	}
	plots := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1)
	if len(plots) != 5 {
		t.Fatalf("%d plots", len(plots))
	}
	for i, want := range []int{2, 2, 2, 2, 0} { // energy is not known
		d, bars := xml.NewDecoder(strings.NewReader(plots[i])), 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("plot %d: %v", i, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				bars++
				for _, a := range e.Attr {
					var width int
					if a.Name.Local == "width" {
						if _, err := fmt.Sscan(a.Value, &width); err != nil || width < 0 || width > barSpace {
							t.Errorf("plot %d: a bar of %s", i, a.Value)
						}
					}
				}
			}
		}
		if bars != want {
			t.Errorf("plot %d has %d bars, want %d", i, bars, want)
		}
	}
	if c := charts(results)[0]; c.Bars[1].Low != 140 || c.Bars[1].Width != 280 || c.Bars[1].Span != 210 || c.Bars[0].Span != 0 {
		t.Errorf("%+v", c.Bars)
	}
}

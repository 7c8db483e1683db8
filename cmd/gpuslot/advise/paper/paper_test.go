package paper

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
	"github.com/gpuslot/gpuslot/test/history"
)

var update = flag.Bool("update", false, "write the golden page again")

func pageOf(t testing.TB, jobs ...[]record.Job) string {
	t.Helper()
	book := advise.NewAdviser(advise.Options{Config: config.Default()})
	for _, js := range jobs {
		for _, j := range js {
			book.Add(j)
		}
	}
	text, err := HTML(book.Advise())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGolden: one class that was alone and is shared now. The page was looked at.
func TestGolden(t *testing.T) {
	k := history.A100("alice", "train.py", history.Bimodal(2800, 6000, .03), .1, .05)
	page := pageOf(t, k.Jobs(history.Seeded(1), 120, history.Start), history.SharedBy(k.Jobs(history.Seeded(2), 120, history.Start.Add(900*time.Hour)), 8, 4608))
	page = strings.Replace(page, paperCSS, "", 1)
	const file = "testdata/page.html"
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), page); d != "" {
		t.Errorf("(-want +got), -update writes it:\n%s", d)
	}
}

// TestSelfContained: nothing comes from elsewhere, nothing runs, and what users
// wrote stays text.
func TestSelfContained(t *testing.T) {
	const bad = `<script>x()</script>"'&`
	k := history.A100(bad, bad, history.Constant(2800), .1, .05)
	k.Model = bad
	page := pageOf(t, k.Jobs(history.Seeded(1), 100, history.Start))
	body := strings.Replace(page, paperCSS, "", 1)
	for _, outside := range []string{"http://", "https://", "<script", "<link", "<img", "@import", "onload", "javascript:"} {
		if strings.Contains(body, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	if regexp.MustCompile(`url\(`).MatchString(strings.ReplaceAll(page, "url(#hatch)", "")) {
		t.Error("the style asks for something else")
	}
	if strings.Count(page, "&lt;script&gt;") < 3 {
		t.Error("the names are not there")
	}
}

func TestEmpty(t *testing.T) {
	if page := pageOf(t); !strings.Contains(page, "No job ended in that time.") || strings.Contains(page, "<table>") {
		t.Error(page)
	}
}

// TestDrawings: for any history no number is broken, and nothing is drawn outside.
func TestDrawings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := history.A100("u", "p", history.Heavy(rapid.Float64Range(1, 40000).Draw(t, "least"), rapid.Float64Range(.3, 5).Draw(t, "tail")),
			rapid.Float64Range(-.5, 1).Draw(t, "sm"), rapid.Float64Range(-.5, 1).Draw(t, "dram"))
		book := advise.NewAdviser(advise.Options{Config: config.Default()})
		for _, j := range k.Jobs(history.Seeded(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(1, 200).Draw(t, "jobs"), history.Start) {
			book.Add(j)
		}
		a := book.Advise()
		for _, d := range append(cardOf(1, a.Classes[0]).Plots, hours("x", a.Users)) {
			check(t, d)
		}
	})
}

func check(t *rapid.T, d drawing) {
	for _, r := range d.Rects {
		x, y, w, h := parse(t, r.X), parse(t, r.Y), parse(t, r.W), parse(t, r.H)
		if x < 0 || y < 0 || x+w > float64(d.W)+.2 || y+h > float64(d.H)+.2 {
			t.Fatalf("%s: %+v in %d x %d", d.Title, r, d.W, d.H)
		}
	}
	for _, p := range append(d.Paths, d.Grid...) {
		if strings.Contains(p.D, "NaN") || strings.Contains(p.D, "Inf") {
			t.Fatalf("%s: %s", d.Title, p.D)
		}
	}
	if d.Label == "" || strings.Contains(d.Label, "%!") {
		t.Fatalf("%s: %q", d.Title, d.Label)
	}
}

func parse(t *rapid.T, s string) float64 {
	var v float64
	if _, err := fmt.Sscan(s, &v); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return v
}

// TestTicks: round, few, and up to the largest value.
func TestTicks(t *testing.T) {
	for _, most := range []float64{.003, .09, 1, 3, 7, 52, 99, 1250, 40960} {
		a := axisOf(most, 100)
		n := len(a.ticks())
		if a.top < most || n < 3 || n > 7 {
			t.Errorf("%v: up to %v, ticks %v", most, a.top, a.ticks())
		}
	}
}

func TestGrouped(t *testing.T) {
	for in, want := range map[string]string{"999": "999", "1234": "1234", "12345": "12\u202f345", "1234567.5": "1\u202f234\u202f567.5", "-": "-", "4.1e-05": "4.1e-05"} {
		if got := grouped(in); got != want {
			t.Errorf("grouped(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestManyUsers: the last ones are summed up in a line, so that they do not dwarf
// the others' bars.
func TestManyUsers(t *testing.T) {
	var users []advise.User
	for i := range 40 {
		used := float64(40 - i)
		users = append(users, advise.User{User: string(rune('A' + i)), Jobs: 1, Hours: advise.Hours{Reserved: 100 - float64(i), Used: advise.Range{Expected: &used}}})
	}
	d := hours("x", users)
	last := d.Keys[len(d.Keys)-1]
	if n := len(d.Texts); n > 3*mostUsers || last.Class != "" || last.Text != "and 26 others: 1911 GPU-hours · 18 % used" {
		t.Errorf("%d texts, %+v", n, last)
	}
}

// TestBinned: no job is lost, and none is drawn on the other side of the request.
func TestBinned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := int64(512)
		counts := map[int64]int{}
		for _, q := range rapid.SliceOf(rapid.Int64Range(0, 300)).Draw(t, "quanta") {
			counts[q*step]++
		}
		var ps []advise.Peak
		for _, mib := range slices.Sorted(maps.Keys(counts)) {
			ps = append(ps, advise.Peak{MiB: mib, Jobs: counts[mib]})
		}
		request := step * rapid.Int64Range(1, 300).Draw(t, "request")
		bars, from, size, end := binned(ps, step, request, request)
		all, above := 0, 0
		for i, n := range bars {
			all += n
			if from+int64(i)*size >= request {
				above += n
			}
		}
		wantAll, wantAbove := 0, 0
		for _, p := range ps {
			wantAll += p.Jobs
			if p.MiB > request {
				wantAbove += p.Jobs
			}
		}
		if all != wantAll || above != wantAbove || len(bars) > mostBars+5 || from > 0 || end < request {
			t.Fatalf("%d of %d, above %d of %d, %d bars from %d to %d", all, wantAll, above, wantAbove, len(bars), from, end)
		}
	})
}

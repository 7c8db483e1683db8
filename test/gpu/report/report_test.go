package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/bench"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestRecorded makes the report of results that were recorded on the simulated
// node: the golden files are what a reader gets.
func TestRecorded(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/simulated")); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.md", "mix-throughput.svg"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s differs from %s; -update writes it anew", name, golden)
		}
	}
	if err := Write(t.TempDir()); err == nil {
		t.Error("a report of nothing")
	}
}

// TestPlots: each is well-formed, says that it is simulated, and has a line for
// each mode that was measured.
func TestPlots(t *testing.T) {
	results, err := read("testdata/simulated")
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	all := plots(results)
	if len(all) != 3*len(results) {
		t.Errorf("%d plots", len(all))
	}
	for name, svg := range all {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !strings.Contains(svg, "(SIMULATED)") {
			t.Errorf("%s does not say that it is simulated", name)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s has no number somewhere", name)
		}
		for _, mode := range []bench.Mode{bench.Exclusive, bench.TimeSlice, bench.MPS, bench.MPSCapped} {
			if !strings.Contains(svg, ">"+string(mode)+"</text>") {
				t.Errorf("%s has no line for %s", name, mode)
			}
		}
	}
}

// TestNothingMeasured: a result without runs makes empty plots and no figure.
func TestNothingMeasured(t *testing.T) {
	results, err := read("testdata/simulated")
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	r.Runs = nil
	for name, svg := range plots([]bench.Result{r}) {
		if !strings.Contains(svg, "not measured") {
			t.Errorf("%s:\n%s", name, svg)
		}
	}
	if page := Page([]bench.Result{r}); !strings.Contains(page, "Advice: unknown") {
		t.Error(page)
	}
}

// TestThePaper: the ratios beside its figures follow from them.
func TestThePaper(t *testing.T) {
	const exclusive = 1.94
	for epochs, ratio := range map[float64]float64{10.06: 5.19, 18.16: 9.36, 14.14: 7.29} {
		if math.Abs(epochs/exclusive-ratio) > 0.005 {
			t.Errorf("%g epochs per second are %.2f times %g", epochs, epochs/exclusive, exclusive)
		}
		for _, cell := range []string{fmt.Sprintf("| %.2f ", epochs), fmt.Sprintf("| %.2f ", ratio)} {
			if !strings.Contains(paper, cell) {
				t.Errorf("no %q", cell)
			}
		}
	}
}

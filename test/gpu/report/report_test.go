package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
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
	all, beside := plots(results), paperPlots(results)
	if len(all) != 4*len(results) || len(beside) != 3 {
		t.Errorf("%d plots, %d beside the papers", len(all), len(beside))
	}
	maps.Copy(all, beside)
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
		if beside[name] != "" {
			continue
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
	for name, svg := range plots([]Sharing{r}) {
		if !strings.Contains(svg, "not measured") {
			t.Errorf("%s:\n%s", name, svg)
		}
	}
	r.Simulated = false
	if page := Page(nil, []Sharing{r}); !strings.Contains(page, "Advice: unknown") {
		t.Error(page)
	}
}

// TestPartial: what was cut off, or came out broken, hides nothing else and is told.
func TestPartial(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	failed := Part{Name: "truth", GPU: "H100", Left: true, Error: "it is late\nand dark"}
	if err := failed.Write(dir); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir); err != nil { // one part, which failed
		t.Fatal(err)
	}
	if page := reads("report.md"); !strings.Contains(page, "| truth | 0 | yes | it is late / and dark |") || !strings.Contains(page, "Nothing of sharing was measured") {
		t.Error(page)
	}
	recorded, err := os.ReadFile("testdata/simulated/sharing-mix/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	write("sharing-mix/bench.json", string(recorded))
	write("sharing-compute/bench.json", string(recorded[:len(recorded)/2]))
	write("truth/T1.json", `{"id":"T1","gpu":"H100","values":{"driver":"580"}}`)
	write("truth/T2.json", `{"id":`)
	write("node.part.json", "")
	err = Write(dir)
	for _, want := range []string{"sharing-compute/bench.json", "T2.json", "node.part.json"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if page := reads("report.md"); !strings.Contains(page, "## mix") || !strings.Contains(page, "and dark") {
		t.Error(page)
	}
	if page := reads("truth.md"); !strings.Contains(page, "| driver | 580 |") || !strings.Contains(page, "Not made: T0, T2, B1, T4") {
		t.Error(page)
	}
}

// TestWork: starts do not count, the work of copies that overlap counts once, and
// a run of which a copy tells nothing is left out.
func TestWork(t *testing.T) {
	dir := t.TempDir()
	log := func(name string, began, ended float64) {
		t.Helper()
		text := fmt.Sprintf("{\"step\":\"cuInit\",\"ms\":50,\"at\":%.3f}\nno JSON\n{\"step\":\"compute 60 9\",\"ms\":%.0f,\"at\":%.3f}\n", began-1, 1000*(ended-began), ended)
		if err := errors.Join(os.MkdirAll(dir+"/logs", 0o755), os.WriteFile(dir+"/logs/"+name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	log("exclusive-1-repeat1-copy0.log", 1001, 1004)
	log("mps-2-repeat1-copy0.log", 1011, 1015)
	log("mps-2-repeat1-copy1.log", 1012, 1016)
	log("mig1g10gb-1-repeat1-copy0.log", 1021, 1026)
	log("mps-2-repeat2-copy0.log", 1031, 1035) // the other said nothing
	job := func(n int, seconds float64) []bench.Job { return slices.Repeat([]bench.Job{{Seconds: seconds}}, n) }
	r := bench.Result{Runs: []bench.Run{
		{Mode: bench.Exclusive, Copies: 1, Repeat: 1, Seconds: 5, Jobs: job(1, 5)}, {Mode: bench.MPS, Copies: 2, Repeat: 1, Seconds: 8, Jobs: job(2, 8)},
		{Mode: bench.MIG, Profile: "1g.10gb", Copies: 1, Repeat: 1, Seconds: 6, Jobs: job(1, 6)}, {Mode: bench.MPS, Copies: 2, Repeat: 2, Seconds: 8, Jobs: job(2, 8)},
	}}
	if err := KeepWork(dir, r); err != nil {
		t.Fatal(err)
	}
	work, err := readWork(dir)
	if err != nil || len(work) != 3 {
		t.Fatalf("%+v %v", work, err)
	}
	var b strings.Builder
	tableWork(&b, r.Points(), work)
	for _, want := range []string{
		"A job takes 5.00 s alone, of which 3.00 s are its work", "| exclusive | 1 | 3.00 | 1.00 |",
		"| mps | 2 | 4.00 (4.00–4.00) | 1.20 |", "| mig 1g.10gb | 1 | 5.00 | 0.60 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestThePapers: ratios follow from the figures that the papers print.
func TestThePapers(t *testing.T) {
	const exclusive = 1.94
	for epochs, ratio := range map[float64]float64{10.06: 5.19, 18.16: 9.36, 14.14: 7.29} {
		if math.Abs(epochs/exclusive-ratio) > 0.005 {
			t.Errorf("%g epochs per second are %.2f times %g", epochs, epochs/exclusive, exclusive)
		}
		for _, cell := range []string{fmt.Sprintf("| %.2f ", epochs), fmt.Sprintf("| %.2f ", ratio)} {
			if !strings.Contains(tables(), cell) {
				t.Errorf("no %q", cell)
			}
		}
	}
	printed := func(quantity, theirs string) {
		t.Helper()
		if !slices.ContainsFunc(figures, func(f figure) bool {
			return strings.Contains(f.what, quantity) && slices.Contains(strings.Fields(strings.ReplaceAll(f.theirs, ";", "")), theirs)
		}) {
			t.Errorf("no %s with %s", quantity, theirs)
		}
	}
	for kJ, what := range map[float64]string{31.15: "time slicing", 14.17: "under MPS", 13.39: "instances 1g"} {
		printed("energy of a job, exclusive against", fmt.Sprintf("%.2f", 59.25/kJ))
		printed(what, fmt.Sprintf("%.2f", 59.25/kJ))
	}
	printed("7 instances 1g against MIG mode off", fmt.Sprintf("%.2f", 7*2.132/16.773))
	printed("7 instances 1g against MIG mode off", fmt.Sprintf("%.2f", 7*30.108/164.373))
	printed("run time on 7g against MIG mode off", fmt.Sprintf("%.2f", 28.732/26.365))
}

// TestBeside: a figure stands beside the same quantity of ours, and where there is
// none, that is said.
func TestBeside(t *testing.T) {
	run := func(mode bench.Mode, profile string, copies int, seconds float64) bench.Run {
		return bench.Run{Mode: mode, Profile: profile, Copies: copies, Repeat: 1, Seconds: seconds, Jobs: slices.Repeat([]bench.Job{{Seconds: seconds}}, copies)}
	}
	r := Sharing{Result: bench.Result{Label: "mix", Runs: []bench.Run{
		run(bench.Exclusive, "", 1, 10), run(bench.TimeSlice, "", 12, 120), run(bench.MPS, "", 12, 24), run(bench.MPS, "", 8, 14),
		run(bench.MIG, "7g.80gb", 1, 11), run(bench.MIG, "3g.40gb", 1, 22), run(bench.MIG, "1g.10gb", 7, 70),
	}}}
	text := besidePapers([]Sharing{r})
	for _, want := range []string{
		"| throughput with 12 copies, MPS against time slicing | close to 5 | 5.00 |",
		"| run time of 12 copies against one, time slicing | grows almost linearly: 12 | 12.00 |",
		"| throughput with 12 copies under MPS against exclusive | 9.36 | 5.00 |",
		"training 1.03 to 1.04; FLOPS 1.07 to 1.10 | 1.10 |",
		"cores 2.21 to 2.29; tensor cores 1.61 | 2.00 |",
		"| run time on 2g against 3g | simulation 1.48 to 1.49; CUDA cores 1.50 to 1.51; tensor cores 1.42 | not measured |",
		"7 instances 1g | steadier than MPS | 1.00 |",
		"| energy of a job, 1g against 7g | above 1: the larger instance uses less | not measured |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	plots := paperPlots([]Sharing{r})
	for name, lines := range map[string][]string{
		"papers-sharing.svg": {"KIT Figure 2", "mix"}, "papers-mig.svg": {"CERN fp32", "CERN tensor", "mix"},
		"papers-tail.svg": {"mix mps", "mix mig 1g.10gb"},
	} {
		for _, line := range lines {
			if !strings.Contains(plots[name], ">"+line+"</text>") {
				t.Errorf("%s has no line for %s", name, line)
			}
		}
	}
}

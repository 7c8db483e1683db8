package scenes

import (
	"context"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// The inventories of most tests: the example node with eight V100S, and one with
// two of them and an H100.
const (
	exampleNode = "../../docs/examples/v100s-8.json"
	mixedNode   = "../site/testdata/v100s-2-h100.json"
)

// inventory reads one for a test that needs a node.
func inventory(t *testing.T, path string) gpu.Inventory {
	t.Helper()
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	inv, err := gpu.ReadInventory(path)
	must(t, err)
	return inv
}

// newStage boots a site with the first GPUs of the example node.
func newStage(t *testing.T, gpus int, o site.Options) *Stage {
	t.Helper()
	inv := inventory(t, exampleNode)
	inv.GPUs = inv.GPUs[:gpus]
	if o.Inventory == nil {
		o.Inventory = &inv
	}
	report := lastWords(t)
	st := stageOn(t, startSite(t, o), inv)
	st.Report = report
	return st
}

// lastWords is a report whose failures stand at the end of the test's output, below
// the journal: what shows the end of a log shows them.
func lastWords(t *testing.T) *Report {
	t.Helper()
	r := &Report{Out: t.Output()}
	t.Cleanup(func() {
		for _, f := range r.Failed {
			t.Logf("FAILED  %s", f)
		}
	})
	return r
}

// stageOn is a stage on a site that runs, with a report of its own.
func stageOn(t *testing.T, s *site.Site, inv gpu.Inventory) *Stage {
	t.Helper()
	return &Stage{Site: s, Inventory: inv, Report: &Report{Out: t.Output()}}
}

func startSite(t *testing.T, o site.Options) *site.Site {
	t.Helper()
	o.Progress = t.Output()
	s, err := site.Start(t.Context(), o)
	must(t, err)
	t.Logf("leg %s, control daemon %s", s.Leg, s.DriverVersion)
	stopAtEnd(t, s)
	return s
}

// stopAtEnd stops a site when its test ends, and tells what the agent said of a failure.
func stopAtEnd(t *testing.T, s *site.Site) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
			defer cancel()
			log, _ := s.Journal(ctx, "gpuslotd.service")
			t.Logf("journal of gpuslotd:\n%s", log)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// done fails the test by what the report says.
func done(t *testing.T, st *Stage) {
	t.Helper()
	for _, f := range st.Failed {
		t.Error(f)
	}
}

// holdFor is hold for a test, which releases it at its end.
func holdFor(t *testing.T, st *Stage, name string) (path string, release func()) {
	t.Helper()
	path, end, err := st.hold(t.Context(), name)
	must(t, err)
	release = func() { must(t, end()) }
	t.Cleanup(release)
	return path, release
}

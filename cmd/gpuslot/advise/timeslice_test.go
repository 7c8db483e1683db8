package advise

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/test/history"
)

// TestTimeSlices: where the site shares a model by time slices, the advice stays with them, and
// does not put the jobs into one address space again. Jobs in turns may gain nothing.
func TestTimeSlices(t *testing.T) {
	slices, err := config.Parse("x", []byte("[sharing]\nmode = \"time-slice\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(o Options, sm, dram float64) Advice {
		return adviceOf(o, history.A100("alice", "train", history.Constant(2800), sm, dram).Jobs(history.Seeded(1), 200, history.Start))
	}
	for _, dram := range []float64{.05, .28} { // jobs in turns do not meet at the memory interface
		a := of(Options{Config: slices}, .3, dram)
		if m := a.Classes[0].Mode; m.Kind != TimeSlice || m.Jobs < 2 || !strings.Contains(m.title(), "Time slices") {
			t.Errorf("%v: %+v", dram, m)
		}
		if lines := a.Settings[0].Lines; len(lines) < 2 || lines[1] != `mode = "time-slice"` {
			t.Errorf("%v: %q; %q", dram, lines, a.Settings[0].Why)
		}
	}
	turns, side := of(Options{Config: slices}, .3, .05).Classes[0].Expect, of(defaults(), .3, .05).Classes[0].Expect
	if *turns.PerGPUAfter.Low > *turns.PerGPUNow.Expected*1.01 || *turns.PerGPUAfter.Low >= *side.PerGPUAfter.Low {
		t.Errorf("in turns %s, alone %s, side by side %s", turns.PerGPUAfter.Text(), turns.PerGPUNow.Text(), side.PerGPUAfter.Text())
	}
	if m := of(Options{Config: slices}, .95, .05).Classes[0].Mode; m.Kind != Whole {
		t.Errorf("a full GPU: %+v", m)
	}
}

package daemons

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// TestForeignChanges: limits that differ are somebody else's doing only where they were right before, and
// the same were wanted.
func TestForeignChanges(t *testing.T) {
	well := State{Checked: mps.Checked{PID: 7}, Wanted: mps.Wanted{GPU: uuid(0), Limit: 4096}}
	failed, gone, other, differs := well, well, well, well
	failed.Err = errors.New("no answer")
	gone.Checked.PID = 0
	other.Wanted.Limit = 2048
	differs.Err = &mps.Error{Differs: []mps.Difference{{Setting: "limit"}, {Setting: "threads"}}}
	for name, c := range map[string]struct {
		last, now State
		want      int
	}{
		"it was well":             {well, differs, 2},
		"it is well":              {well, well, 0},
		"another error":           {well, failed, 0},
		"it was not well":         {failed, differs, 0},
		"it did not run":          {gone, differs, 0},
		"another limit is wanted": {other, differs, 0},
		"nothing was before":      {State{}, differs, 0},
	} {
		n := newNode(t, 1)
		n.reportForeignChanges(map[gpu.UUID]State{uuid(0): c.last}, map[gpu.UUID]State{uuid(0): c.now})
		if n.counts["change"] != c.want {
			t.Errorf("%s: %d changes, want %d", name, n.counts["change"], c.want)
		}
	}
}

// TestCulpritIsNoted: the history has a culprit once, and none where the log names no process.
func TestCulpritIsNoted(t *testing.T) {
	for _, lines := range [][]string{nil, {faultLine(600)}} {
		n := newNode(t, 1).tested()
		n.lines, n.noted = lines, nil
		n.daemons[uuid(0)].servers = serverIn(mps.Faulted, 500)
		for range culpritLooks + 2 {
			n.round()
		}
		if noted := strings.Count(strings.Join(n.noted, "\n"), "names the cause of a fault"); noted != len(lines) {
			t.Errorf("the log %q: %q", lines, n.noted)
		}
	}
}

package truth

import (
	"fmt"
	"testing"
)

// TestKillMeetsAKernel: a client is killed while one of its kernels runs. Between two
// kernels its end harms nobody: T10 differed from run to run.
func TestKillMeetsAKernel(t *testing.T) {
	l := simulated(t, "550.163.01")
	for i := range 10 {
		n := newNotes()
		kill := step{"killed", func() error { return l.killBusy(t.Context(), n, "killed") }}
		if err := l.each(t.Context(), []step{kill}); err != nil {
			t.Fatal(err)
		}
		if n.values["killed_neighbour_code"] == 0 {
			t.Errorf("kill %d: %v\n%s", i+1, n.values, fmt.Sprint(n.records))
		}
	}
	left(t)
}

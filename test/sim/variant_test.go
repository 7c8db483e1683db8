package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVariantsExportWhatTheDriverExports: not one name more or less.
func TestVariantsExportWhatTheDriverExports(t *testing.T) {
	for _, branch := range Branches() {
		t.Run(branch, func(t *testing.T) {
			n := NewVariant(t, branch, "V100S")
			want, err := realSymbols(t.Context(), branch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := n.Exports(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("exports differ from driver %s (-want +got):\n%s", branch, d)
			}
			// The counts were read by hand.
			if count := map[string]int{"470": 255, "535": 332, "550": 350, "555": 354}[branch]; len(got) != count {
				t.Errorf("%d names, want %d", len(got), count)
			}
		})
	}
}

// TestNewerVariants: what nobody could look at has the names of the header, and
// an older branch lacks what came later: a client that does not look first dies.
func TestNewerVariants(t *testing.T) {
	counts := map[string]int{}
	for _, branch := range Newer() {
		n := NewVariant(t, branch, "H200")
		names, err := n.Exports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts[branch] = len(names)
		if has := slices.Contains(names, "nvmlDeviceSetMemoryLimits_v1"); has != (branch == "615") {
			t.Errorf("%s: nvmlDeviceSetMemoryLimits_v1 exported: %v", branch, has)
		}
		out, err := n.worker(t.Context(), t, "limits", "get", "/nonexistent").CombinedOutput()
		if died := strings.Contains(string(out), "undefined symbol: nvmlDeviceGetMemoryLimits_v1"); died != (branch == "590") {
			t.Errorf("%s: %v: %s", branch, err, out)
		}
	}
	if counts["615"]-counts["590"] != len(after590) {
		t.Errorf("%v names: want %d fewer in 590", counts, len(after590))
	}
}

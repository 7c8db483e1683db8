package sim

import (
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
			// The counts of the fact sheet were read by hand.
			if count := map[string]int{"470": 255, "535": 332, "550": 350, "555": 354}[branch]; len(got) != count {
				t.Errorf("%d names, want %d", len(got), count)
			}
		})
	}
}

package condor

import (
	"slices"
	"testing"
)

// TestKnobsOf: what a knob adds to itself, from other knobs of the text too.
func TestKnobsOf(t *testing.T) {
	text := "ATTRIBUTES = A B\n# LIST = no\nLIST = $(LIST) $(ATTRIBUTES) C\nTABLE @=end\n LIST = $(LIST) X\n@end\n" +
		"LIST = $(LIST) $(OTHER) \\\n  D\nATTRIBUTES = $(ATTRIBUTES) E\n"
	all := knobsOf([]byte(text))
	var names []string
	for _, k := range all {
		names = append(names, k.name)
	}
	if !slices.Equal(names, []string{"ATTRIBUTES", "LIST", "TABLE"}) {
		t.Fatalf("knobs %q", names)
	}
	if want := []string{"A", "B", "C", "$(OTHER)", "D"}; !slices.Equal(all[1].adds, want) {
		t.Errorf("LIST adds %q, want %q", all[1].adds, want)
	}
}

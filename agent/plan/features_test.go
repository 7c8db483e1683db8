package plan_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
)

// TestFeaturesAreDocumented holds the table of docs/platforms.md to the code's.
func TestFeaturesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| what | driver | without it |\n|---|---|---|\n"
	for _, f := range plan.Features() {
		want += fmt.Sprintf("| %s | %d | %s |\n", f.Name, f.Branch, f.Without)
	}
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/platforms.md does not have this table:\n%s", want)
	}
	if !slices.IsSortedFunc(plan.Features(), func(a, b plan.Feature) int { return a.Branch - b.Branch }) {
		t.Error("the features are not in the order of their drivers")
	}
}

func TestFeatureOfADriver(t *testing.T) {
	for driver, lacks := range map[string]bool{"": false, "470.256.02": true, "534.1": true, "535.43.02": false, "550.163.01": false} {
		if got := plan.Sharing.Lacks(driver); got != lacks {
			t.Errorf("driver %q lacks sharing: %v, want %v", driver, got, lacks)
		}
	}
}

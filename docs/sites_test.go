package docs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSiteRecipes holds what sites.md shows to what the tests run.
func TestSiteRecipes(t *testing.T) {
	page, err := os.ReadFile("sites.md")
	if err != nil {
		t.Fatal(err)
	}
	chain, err := os.ReadFile("../test/scenes/testdata/site-chain.sh")
	if err != nil {
		t.Fatal(err)
	}
	scene, err := os.ReadFile("../test/scenes/testdata/site.config")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), string(chain)) {
		t.Error("sites.md shows another chain than the scene runs")
	}
	set := 0
	for _, recipe := range []string{"## A hook of your own\n", "## use feature:GPUs\n"} {
		_, section, _ := strings.Cut(string(page), recipe)
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(section) {
			if line, shown := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    "); shown {
				set++
				if !slices.Contains(strings.Split(string(scene), "\n"), line) {
					t.Errorf("sites.md shows a line that the scene does not have: %s", line)
				}
			}
		}
	}
	if set != 3 {
		t.Errorf("sites.md shows %d lines of HTCondor's configuration, want the hook, the feature and the inventory", set)
	}
}

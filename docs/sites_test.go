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
	for _, line := range []string{"GPUSLOT_HOOK_PREPARE_JOB = /opt/site/chain",
		"MACHINE_RESOURCE_INVENTORY_GPUs = /usr/libexec/gpuslot/gpuslot-condor inventory /run/gpuslot/condor/inventory.ad"} {
		if !strings.Contains(string(page), line) || !slices.Contains(strings.Split(string(scene), "\n"), line) {
			t.Errorf("not in both sites.md and the scene: %s", line)
		}
	}
}

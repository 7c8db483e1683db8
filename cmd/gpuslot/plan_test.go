package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
)

// TestPlanNotInForce: on a fresh node nothing differs, and a plan that cannot be read is
// an error.
func TestPlanNotInForce(t *testing.T) {
	var r report
	err := r.compareInForce("/nonexistent/plan.json")
	if err != nil || len(r.Differences) != 0 || !strings.HasPrefix(r.NotInForce, "No plan is in force yet: ") {
		t.Errorf("missing: %v, %q, %q", err, r.Differences, r.NotInForce)
	}
	bad := filepath.Join(t.TempDir(), "plan.json")
	must(t, os.WriteFile(bad, nil, 0o600))
	r = report{Plan: plan.Plan{}}
	if err := r.compareInForce(bad); err == nil || r.NotInForce != "" {
		t.Errorf("empty: %v, %q", err, r.NotInForce)
	}
}

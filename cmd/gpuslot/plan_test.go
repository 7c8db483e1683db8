package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
)

// The agent's own plan file may be missing, one that somebody named may not.
func TestCompareInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	said, err := compareInForce(file, plan.Plan{})
	if err != nil || len(said) != 1 || !strings.HasPrefix(said[0], "No plan is in force: there is no "+file) {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := compare(file, plan.Plan{}); err == nil {
		t.Error("a named plan file that is missing is no error")
	}
	if _, err := compareInForce(t.TempDir(), plan.Plan{}); err == nil {
		t.Error("a plan file that cannot be read is no error")
	}
}

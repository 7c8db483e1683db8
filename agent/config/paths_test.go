package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPathsFollowTheDirectories(t *testing.T) {
	p := Paths{Run: "/tmp/run", State: "/tmp/state"}
	// supervise looks for the job wrapper beside the socket.
	got := []string{p.PipeRoot(), p.PlanFile(), p.InventoryAds(), p.JobWrapper(), p.ClosuresFile()}
	want := []string{"/tmp/run/mps", "/tmp/run/plan.json", "/tmp/run/condor/inventory.ad", "/tmp/run/condor/job-wrapper", "/tmp/state/holds.json"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

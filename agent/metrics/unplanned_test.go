package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestUnplanned: a GPU that was sampled and is not in the plan is named once. MIG devices, and the GPUs of
// those in the plan, are not.
func TestUnplanned(t *testing.T) {
	at := time.Unix(1000, 0)
	var snap usage.Snapshot
	for _, d := range []usage.Device{{GPU: uuidOf(0)}, {GPU: uuidOf(1)}, {GPU: uuidOf(1), MIG: migUUID}, {GPU: uuidOf(2)}, {GPU: uuidOf(2), MIG: migUUID}} {
		snap.Devices = append(snap.Devices, usage.DeviceUsage{Device: d, At: at})
	}
	p := plan.Plan{GPUs: []plan.GPU{{UUID: uuidOf(0)}, {UUID: migUUID, Parent: uuidOf(2)}}}
	got := usageOf(&status.Snapshot{Node: status.Node{Config: config.Default(), Plan: p}, At: at, Usage: &snap, Startds: &startd.Said{}})
	if d := cmp.Diff([]gpu.UUID{uuidOf(1)}, got.Unplanned); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(got.Devices) != 5 {
		t.Errorf("devices: %+v", got.Devices)
	}
}

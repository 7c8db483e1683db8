package page

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestNodeOf: a planned GPU has its plan, its jobs and what was sampled; one that is not planned has the sample alone,
// and a MIG device stands below its GPU only.
func TestNodeOf(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	planned, place := gpu.UUID("GPU-1"), gpu.UUID("GPU-place")
	s := &status.Snapshot{Host: "wn1", Version: "1", Startds: &startd.Said{}, Usage: &usage.Snapshot{At: at, Devices: []usage.DeviceUsage{
		{Device: usage.Device{GPU: planned}, Power: gpu.Known(70.0)}, {Device: usage.Device{GPU: "GPU-2"}, Power: gpu.Known(30.0)},
		{Device: usage.Device{GPU: "GPU-2", MIG: "MIG-1"}},
	}}}
	s.Planned, s.Plan.Driver = true, "550"
	s.Plan.GPUs = []plan.GPU{{UUID: planned, Index: 3, Name: "V100", Mode: config.ModeMPS, Shares: 4, Memory: 32768}, {UUID: place, Place: "1g.5gb@0"}}
	server := mps.Server{ID: process.ID{PID: 7}, UID: 1000, Status: mps.Active}
	s.GPUs = []status.GPU{
		{GPU: &s.Plan.GPUs[0], Reason: "mallory's job", Daemon: daemons.State{Checked: mps.Checked{States: []mps.Server{server, server}}}},
		{GPU: &s.Plan.GPUs[1], Reason: "it is not made"},
	}
	s.Running = []jobs.Job{{GPU: planned, Budget: 4096, Starter: starter.Starter{Slot: "slot1_1"}}, {GPU: "GPU-2", Starter: starter.Starter{Slot: "slot1_2"}}}
	n := NodeOf(s)
	if n.Host != "wn1" || n.Driver != "550" || !n.At.Equal(at) || len(n.GPUs) != 3 || len(n.Problems) > 0 {
		t.Fatalf("%+v", n)
	}
	g := n.GPUs[0]
	if g.UUID != planned || g.Index != 3 || !g.Shared || g.Power != gpu.Known(70.0) || g.Total != gpu.Known(gpu.Bytes(32768<<20)) ||
		len(g.Slots) != 1 || g.Slots[0].Budget != 4096<<20 {
		t.Errorf("%+v", g)
	}
	if g.Closed == "" || strings.Contains(g.Closed, "mallory") || strings.Count(g.MPS, "; ") != 1 || strings.Contains(g.MPS, "1000") {
		t.Errorf("closed %q, servers %q", g.Closed, g.MPS)
	}
	if n.GPUs[1].UUID != place || n.GPUs[1].Closed != "" {
		t.Errorf("a place without a device: %+v", n.GPUs[1])
	}
	if g := n.GPUs[2]; g.UUID != "GPU-2" || g.Index != NotPlanned || g.Power != gpu.Known(30.0) || len(g.MIG) != 1 {
		t.Errorf("not planned: %+v", g)
	}
	s.Plan.GPUs[1].Device = "MIG-2"
	if n := NodeOf(s); n.GPUs[1].Closed == "" {
		t.Errorf("a place with a device: %+v", n.GPUs[1])
	}
}

// TestProblemsOfTheNode: each has one sentence, and none of them names an account.
func TestProblemsOfTheNode(t *testing.T) {
	for want, set := range map[string]func(*status.Snapshot){
		"There is no plan in force yet": func(s *status.Snapshot) { s.Planned = false },
		"gpuslot.toml was rejected":     func(s *status.Snapshot) { s.ConfigError = "mallory" },
		"HTCondor runs an older layout": func(s *status.Snapshot) { s.Startds.Changes = []api.Change{{Need: api.NeedRestart}} },
		"GPU-9 is configured, but":      func(s *status.Snapshot) { s.Plan.Absent = []gpu.UUID{"GPU-9"} },
	} {
		s := &status.Snapshot{Startds: &startd.Said{}}
		s.Planned = true
		if got := problems(s); len(got) > 0 {
			t.Errorf("of nothing: %q", got)
		}
		if set(s); len(problems(s)) != 1 || !strings.HasPrefix(problems(s)[0], want) || strings.Contains(problems(s)[0], "mallory") {
			t.Errorf("%q", problems(s))
		}
	}
}

// TestHourOfSamples: each GPU has its points, and what a MIG device has is not the GPU's. A clock that was set back
// begins the hour again, and what is not dated is no moment.
func TestHourOfSamples(t *testing.T) {
	var h History
	power := func() (known int) {
		_, _, power := h.of("GPU-1")
		for _, p := range power {
			if p.Known {
				known++
			}
		}
		return known
	}
	at := time.Unix(1_800_000_000, 0)
	snap := &usage.Snapshot{Devices: []usage.DeviceUsage{
		{Device: usage.Device{GPU: "GPU-1"}, Power: gpu.Known(70.0)}, {Device: usage.Device{GPU: "GPU-1", MIG: "MIG-1"}, Power: gpu.Known(10.0)},
	}}
	if h.AddSample(snap); power() != 0 {
		t.Error("it is not dated")
	}
	for i := range 3 {
		snap.At = at.Add(time.Duration(i) * step)
		h.AddSample(snap)
	}
	if _, _, got := h.of("GPU-1"); power() != 3 || got[points-1] != gpu.Known(70.0) || len(h.gpus) != 1 {
		t.Errorf("%d points of %d GPUs, the last is %v", power(), len(h.gpus), got[points-1])
	}
	snap.At = at
	if h.AddSample(snap); power() != 1 {
		t.Errorf("after the clock was set back: %d points", power())
	}
}

// TestEdgesOfMemory: what is in slots to the last byte leaves no rest.
func TestEdgesOfMemory(t *testing.T) {
	d := Device{Total: gpu.Known(gpu.Bytes(100)), Used: gpu.Known(gpu.Bytes(60)), Slots: []Slot{{Memory: gpu.Known(gpu.Bytes(60))}}}
	if b := memoryBar(d); len(b.Rects) != 1 {
		t.Errorf("%+v", b)
	}
	d.Used = gpu.Known(gpu.Bytes(61))
	if b := memoryBar(d); len(b.Rects) != 2 || b.Rects[1].Class() != "rest" {
		t.Errorf("%+v", b)
	}
}

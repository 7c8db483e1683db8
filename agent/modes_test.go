package agent

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/hardware"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestComputeModeIsUndone(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	var u modes.Journal
	if err := json.Unmarshal([]byte(ta.read(filepath.Join(ta.dir, "s/undo.json"))), &u); err != nil {
		t.Fatal(err)
	}
	if len(u.ComputeModes) != 2 || u.ComputeModes[uuid(1)] != gpu.ComputeModeDefault {
		t.Errorf("undo = %v", u.ComputeModes)
	}
	// A crash between journal and change must not lose the first value.
	ta.hw.inv.GPUs[0].ComputeMode = gpu.ComputeModeProhibited
	ta.restart()
	after, err := modes.Read(filepath.Join(ta.dir, "s/undo.json"))
	if err != nil || after.ComputeModes[uuid(0)] != gpu.ComputeModeDefault {
		t.Errorf("undo = %v, %v", after.ComputeModes, err)
	}
	if err := Release(t.Context(), ta.options(), false); err != nil {
		t.Fatal(err)
	}
	for _, g := range ta.hw.inv.GPUs {
		if g.ComputeMode != gpu.ComputeModeDefault {
			t.Errorf("%s is left in %s", g.UUID, g.ComputeMode)
		}
	}
	if len(ta.daemons.running) != 0 {
		t.Error("control daemons are left")
	}
	for f := range ta.files() {
		if strings.Contains(f, "/condor/") || strings.HasSuffix(f, "plan.json") {
			t.Errorf("%s is left", f)
		}
	}
}

func TestComputeModeCannotBeSet(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.hw.refuse = hardware.ErrRecorded
	ta.restart()
	if why := ta.reason(0); why != "" {
		t.Errorf("the GPU is closed: %s", why)
	}
	before := ta.files()
	ta.apply(false)
	if m := ta.status().GPUs[0].ComputeMode; !strings.Contains(m, "default, not exclusive-process") {
		t.Errorf("status says %q", m)
	}
	for path, at := range ta.files() {
		if !before[path].Equal(at) {
			t.Errorf("%s was written in vain", path)
		}
	}
	ta.hw.refuse = nil
	ta.apply(true)
	if m := ta.status().GPUs[0].ComputeMode; m != "exclusive-process" {
		t.Errorf("after a reload: %q", m)
	}
}

func TestReleaseRefusesWithJobs(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.proc.starter(100, "slot1_1")
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "7.0", "alice", 4096, uuid(0))}, nil)
	err := Release(t.Context(), ta.options(), false)
	if err == nil || !strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("error = %v", err)
	}
	if len(ta.daemons.running) != 1 {
		t.Error("a refused release stopped a control daemon")
	}
	ta.startd.set(nil, errors.New("no startd"))
	if err := Release(t.Context(), ta.options(), false); err == nil {
		t.Error("released with an unknown job")
	}
	if err := Release(t.Context(), ta.options(), true); err != nil || len(ta.daemons.running) != 0 {
		t.Errorf("forced: %v, %d daemons left", err, len(ta.daemons.running))
	}
}

func TestUnreadableUndoFileIsLeftAlone(t *testing.T) {
	for _, text := range []string{"{broken", `{"schema":"gpuslot-undo/2","compute_modes":{}}`, `{"schema":"gpuslot-undo/1","clocks":{}}`} {
		unreadableUndo(t, text)
	}
}

func unreadableUndo(t *testing.T, text string) {
	ta := bareTestAgent(t, 1, "")
	path := filepath.Join(ta.dir, "s/undo.json")
	if err := store.Write(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
	ta.restart()
	if got := ta.read(path); got != text {
		t.Errorf("the file now says %q", got)
	}
	if len(ta.hw.modes) != 0 {
		t.Error("a compute mode was changed without a way back")
	}
	if s := strings.Join(ta.status().Warnings, "\n"); !strings.Contains(s, "undo.json") {
		t.Errorf("status does not tell: %s", s)
	}
}

// TestWholeJobDelaysComputeMode: an exclusive mode would break a job that has
// the whole card, from before it was shared.
func TestWholeJobDelaysComputeMode(t *testing.T) {
	ta := newTestAgent(t, 1, "[sharing]\nmode = \"whole\"\n")
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "7.0", "alice", 32768, uuid(0))}, nil)
	ta.writeConfig("")
	ta.apply(true)
	if len(ta.hw.modes) != 0 {
		t.Fatalf("modes set under a job: %v", ta.hw.modes)
	}
	if m := ta.status().GPUs[0].ComputeMode; !strings.Contains(m, "slot1_1") {
		t.Errorf("status says %q", m)
	}
	ta.startd.set(nil, nil)
	ta.apply(false)
	if len(ta.hw.modes) != 1 {
		t.Error("the mode was not set once the job had ended")
	}
}

// TestUnknownJobDelaysComputeMode: while the startd does not say which GPU a job has, no
// mode is changed under it.
func TestUnknownJobDelaysComputeMode(t *testing.T) {
	odd := slotAd("slot1_1", "7.0", "alice", 32768, uuid(0))
	odd.AssignedGPUs, odd.Unreadable = nil, "AssignedGPUs"
	for _, c := range []struct {
		name  string
		slots []condor.Slot
		err   error
		says  string
	}{
		{"no answer", nil, errors.New("the startd does not answer"), "the startd does not answer"},
		{"an ad that cannot be read", []condor.Slot{odd}, nil, "attributes that cannot be read: AssignedGPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ta := newTestAgent(t, 1, "[sharing]\nmode = \"whole\"\n")
			ta.proc.starter(100, "slot1_1")
			ta.startd.set(c.slots, c.err)
			ta.writeConfig("")
			ta.apply(true)
			if len(ta.hw.modes) != 0 {
				t.Fatalf("modes set under a job: %v", ta.hw.modes)
			}
			m := ta.status().GPUs[0].ComputeMode
			if !strings.Contains(m, "the job in slot1_1 has") || !strings.Contains(m, c.says) {
				t.Errorf("status says %q", m)
			}
			ta.proc.End(100)
			ta.apply(false)
			if len(ta.hw.modes) != 1 {
				t.Error("the mode was not set once no job ran")
			}
		})
	}
}

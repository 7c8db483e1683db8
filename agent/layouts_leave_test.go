package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// What is ours goes when the GPU is not to be divided any more: idle devices at once,
// one in use when its job has ended, and then MIG mode, which was off; the GPU is
// shared again.
func TestLeavingMIG(t *testing.T) {
	ta, f := followAgent(t, "auto", "")
	busy := ta.place("1g.5gb@3")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", busy.UUID, 2048)
	ta.writeConfig("")
	v := ta.apply(true)
	if len(f.S.Instances) != 1 || f.S.Instances[0].Start != 3 || !f.S.Enabled {
		t.Fatalf("with a job on 1g.5gb@3 there is %+v", f.S.Instances)
	}
	if !slices.ContainsFunc(v.problems, func(p string) bool { return strings.Contains(p, "until their users end: [1g.5gb@3]") }) {
		t.Errorf("problems: %q", v.problems)
	}
	ta.proc.End(100)
	ta.apply(false)
	if len(f.S.Instances) != 0 || f.S.Enabled {
		t.Errorf("when the job has ended there is %+v, MIG mode %t", f.S.Instances, f.S.Enabled)
	}
	ta.apply(false)
	if g, ok := ta.view.Load().plan.GPU(uuid(0)); !ok || !g.Shared() {
		t.Errorf("the GPU is not shared again: %+v", ta.view.Load().plan.GPUs)
	}
	if u, err := modes.Read(modes.File(ta.view.Load().config.Paths)); err != nil || len(u.MIGModes) > 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

// Release takes the devices back, and leaves those in use.
func TestReleaseMIG(t *testing.T) {
	ta, f := migAgent(t, "3g.20gb@4, 1g.5gb@0", "")
	ta.restart()
	f.S.Instances[1].Holders = []gpu.Holder{{PID: 4711}}
	used := f.S.Instances[1].Place
	if err := Release(t.Context(), ta.options(), false); err == nil || !strings.Contains(err.Error(), "until their users end") {
		t.Errorf("released with %+v: %v", f.S.Instances, err)
	}
	if len(f.S.Instances) != 1 || f.S.Instances[0].Place != used {
		t.Errorf("there is %+v", f.S.Instances)
	}
	f.S.Instances[0].Holders = nil
	if err := Release(t.Context(), ta.options(), false); err != nil || len(f.S.Instances) != 0 || f.S.Enabled {
		t.Errorf("%v, there is %+v, MIG mode %t", err, f.S.Instances, f.S.Enabled)
	}
}

// Release, also if it is forced, leaves the devices of jobs that have opened nothing. While the startd does not report
// them all devices stay.
func TestReleaseMIGOfJobs(t *testing.T) {
	ta, f := migAgent(t, "1g.5gb*7", "")
	ta.restart()
	place := ta.place("1g.5gb@0")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", place.UUID, 2048)
	ta.startd.set(nil, errors.New("no answer"))
	for _, c := range []struct {
		force bool
		want  string
		stay  int
	}{{false, "jobs may be running", 7}, {true, "stay for now: slot1_1", 7}, {false, "jobs run in slot1_1", 7}, {true, "until their users end: [1g.5gb@0]", 1}} {
		err := Release(t.Context(), ta.options(), c.force)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(f.S.Instances) != c.stay || !f.S.Enabled {
			t.Errorf("force %t: %v, want %q; there is %+v", c.force, err, c.want, f.S.Instances)
		}
		if c.force {
			ta.startd.set([]condor.Slot{slotAd("slot1_1", "5.0", "alice", 2048, place.UUID)}, nil)
		}
	}
	ta.proc.End(100)
	if err := Release(t.Context(), ta.options(), true); err != nil || len(f.S.Instances) > 0 || f.S.Enabled {
		t.Errorf("after the job: %v; there is %+v", err, f.S.Instances)
	}
}

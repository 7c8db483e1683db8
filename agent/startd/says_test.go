package startd

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
)

// TestSays: what an operator is told of a change: what is not so yet, what waits for whom, and
// who runs the command.
func TestSays(t *testing.T) {
	jobs := []api.ChangeJob{{Slot: "slot1_1", ID: "7.0"}}
	for _, c := range []struct {
		change api.Change
		policy config.Changes
		want   []string
		not    string
	}{
		{api.Change{Daemon: "STARTD_A", Need: api.NeedStop}, config.ChangesDrain, []string{"STARTD_A is not wanted any more", "condor_reconfig stops it."}, "never"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedStop}, config.ChangesNever, []string{"condor_reconfig stops it", `changes = "never"`}, "until"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedStop, Jobs: jobs}, config.ChangesNever, []string{"slot1_1 7.0", "until they have ended"}, "stops it"},
		{api.Change{Need: api.NeedReconfig}, config.ChangesDrain, []string{"HTCondor reads its new configuration", "touches no job"}, "has not read"},
		{api.Change{Need: api.NeedReconfig}, config.ChangesNever, []string{"run condor_reconfig", `"never"`}, "waits"},
		{api.Change{Need: api.NeedReconfig, Blocked: "STARTD_B"}, config.ChangesNever, []string{"waits for STARTD_B"}, "run condor_reconfig"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedStart}, config.ChangesDrain, []string{"STARTD_A does not run", "starts it."}, "never"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedStart}, config.ChangesNever, []string{"does not run", `"never"`}, "waits"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedStart, Blocked: "STARTD_B"}, config.ChangesDrain, []string{"STARTD_A waits: STARTD_B still offers"}, "does not run"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedRestart}, config.ChangesDrain, []string{"runs an older layout", "no job runs on it, so it restarts now"}, "takes no new"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedRestart, Jobs: jobs}, config.ChangesDrain, []string{"1 job runs on it (slot1_1 7.0)", "takes no new ones"}, "restarts now"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedRestart, Jobs: jobs}, config.ChangesWhenIdle, []string{"it restarts when none runs"}, "takes no new ones"},
		{api.Change{Daemon: "STARTD_A", Need: api.NeedRestart, Jobs: jobs}, config.ChangesNever, []string{"condor_restart -peaceful -daemon STARTD_A", `"never"`}, "restarts now"},
	} {
		got := says(c.change, c.policy)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%+v, %s: %q without %q", c.change, c.policy, got, want)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%+v, %s: %q has %q", c.change, c.policy, got, c.not)
		}
	}
}

// TestBlock: while a startd with jobs is to stop, no other change may run condor_reconfig; a
// restart needs none, and what waits for another reason keeps that.
func TestBlock(t *testing.T) {
	busy := api.Change{Daemon: "OLD", Need: api.NeedStop, Jobs: []api.ChangeJob{{Slot: "slot1_1", ID: "7.0"}}}
	all := block([]api.Change{
		{Daemon: "A", Need: api.NeedRestart, Says: "restart"}, busy, {Need: api.NeedReconfig},
		{Daemon: "B", Need: api.NeedStart, Blocked: "C", Says: "waits for C"},
	}, config.ChangesDrain)
	for i, want := range []string{"", "OLD", "OLD", "C"} {
		if all[i].Blocked != want {
			t.Errorf("%+v is blocked by %q, want %q", all[i], all[i].Blocked, want)
		}
	}
	if all[0].Says != "restart" || all[3].Says != "waits for C" || !strings.Contains(all[2].Says, "waits for OLD") {
		t.Errorf("%+v", all)
	}
	busy.Jobs = nil
	if free := block([]api.Change{busy, {Need: api.NeedReconfig}}, config.ChangesDrain); free[1].Blocked != "" {
		t.Errorf("%+v", free)
	}
}

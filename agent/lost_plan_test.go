package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/condor"
)

// TestPlanUnreadable: without the plan before, a control daemon is not stopped under
// a job from then, and who has access is found all the same.
func TestPlanUnreadable(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "rubbish": "\x00", "of a newer agent": `{"schema":"gpuslot-plan/99"}`,
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			runs := ta.proc.starter(100, "slot1_1")
			ta.grant(runs, 1000, "alice", uuid(1), 4096)
			ta.grant(ta.proc.starter(101, "slot1_2"), 1001, "bob", uuid(0), 4096)
			pid := ta.daemons.running[uuid(1)].process.PID
			file := ta.config().PlanFile()
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			ta.proc.End(101) // bob's job ends while nobody looks
			ta.writeConfig("[gpu.\"" + string(uuid(1)) + "\"]\nmode = \"whole\"\n")
			ta.startd.set([]condor.Slot{slotAd("slot1_1", "5.0", "alice", 4096, uuid(1))}, nil)
			for range 2 {
				ta.restart() // another agent knows no more
				ta.startds.Ask(t.Context())
				v := ta.apply(false)
				if d := ta.daemons.running[uuid(1)]; d == nil || d.process.PID != pid {
					t.Fatal("a control daemon was stopped under its job")
				}
				if !strings.Contains(strings.Join(v.problems, "\n"), "slot1_1") || v.roundOK {
					t.Errorf("problems: %q", v.problems)
				}
			}
			ta.sweeper.now()
			if ta.access.has(uuid(0), 1001) || !ta.access.has(uuid(1), 1000) {
				t.Error("access is not that of the jobs which run")
			}
			if got := ta.read(file); got != text {
				t.Errorf("the file says %q", got)
			}
			ta.proc.End(100)
			ta.sweeper.now()
			if v := ta.apply(false); len(v.problems) > 0 {
				t.Errorf("the job has ended: %q", v.problems)
			}
			if ta.daemons.running[uuid(1)] != nil || ta.access.has(uuid(1), 1000) {
				t.Error("the control daemon or its access outlives the job")
			}
			if got := ta.read(file + ".unreadable"); got != text {
				t.Errorf("kept aside: %q", got)
			}
			if len(ta.read(file)) < 100 {
				t.Error("no plan was written")
			}
		})
	}
}

package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/server"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestJobsLife: what the agent keeps of a job from its admission over its hold
// to its end, and of the job after it in its slot.
func TestJobsLife(t *testing.T) {
	s := serveTestAgent(t, 1)
	st := s.in("slot1_1", false)
	s.grant(st, uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.proc.Add(proctree.Process{PID: 200, Parent: 1, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1")})
	s.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 50}, Clients: []int{200}}}
	})
	r := gpu.Reading{GPU: uuid(0), At: time.Now()}
	r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: 200, Memory: gpu.Known(gpu.Bytes(6000 * mib)), MPSClient: true}})
	s.reads(&fakeUsage{[]gpu.Reading{r}})
	begin := s.view.Load().applied
	s.sampledAt(begin)
	s.sampledAt(begin.Add(s.view.Load().config.Budgets.Grace))
	s.ender.Wait()
	s.forgetQuestions(st)
	s.prepare(starter.Caller{Starter: st, UID: uint32(os.Getuid()), Hook: true}, jobOn(st, "alice", uuid(0), 1<<20))
	startdHears := func() []api.Use {
		reply := s.answers.handlers(s.proc.fs(), nil)[api.OpUsage].Answer(t.Context(), server.Question{})
		return reply.Uses
	}
	if uses := startdHears(); len(uses) != 1 || uses[0].PeakMiB == nil || *uses[0].PeakMiB != 6000 || uses[0].GPUSeconds != nil {
		t.Errorf("uses %+v", uses)
	}
	s.proc.End(st.PID)
	next := s.proc.starter(1002, "slot1_1")
	s.grant(next, uint32(os.Getuid()), "alice", uuid(0), 4096)
	if uses := startdHears(); len(uses) != 0 {
		t.Errorf("the slot's next job is told %+v, and it has used nothing", uses)
	}
	s.history.Flush()
	paths := s.view.Load().config.Paths
	records, err := history.Records(paths, time.Time{})
	if err != nil || len(records) != 1 {
		t.Fatalf("records %+v, %v", records, err)
	}
	got := records[0]
	if got.Slot != "slot1_1" || got.Job == "" || got.Owner != "alice" || got.PeakMiB == nil || *got.PeakMiB != 6000 || got.HoldCode != api.CodeOverBudget || got.SM.Estimate != nil {
		t.Errorf("record %+v", got)
	}
	events, err := history.Events(paths)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []history.EventKind
	for _, e := range events {
		if e.Job == got.Job && e.Slot == "slot1_1" {
			kinds = append(kinds, e.Kind)
		}
	}
	// The second admission is the next job's, which bears the same name here.
	if want := []history.EventKind{history.EventAdmitted, history.EventHold, history.EventRefused, history.EventAdmitted, history.EventEnd}; !slices.Equal(kinds, want) {
		t.Errorf("the job's events are %v, want %v", kinds, want)
	}
	end := events[slices.IndexFunc(events, func(e history.Event) bool { return e.Kind == history.EventEnd })]
	if end.GPU != uuid(0) || !strings.Contains(end.Text, "its VRAM peaked at 6000 MiB of 4096 MiB; gpuslot had it held: used 6000 MiB") {
		t.Errorf("its end is %+v", end)
	}
	if again, err := history.Records(paths, time.Now().Add(time.Minute)); err != nil || len(again) != 0 {
		t.Errorf("%d records of the future, %v", len(again), err)
	}
}

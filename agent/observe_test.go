package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

const observing = "[sharing]\nmode = \"observe\"\n"

// On an observed node nothing is set up, nothing is told to HTCondor, and whoever
// would keep a job away or start something hears why not.
func TestObserveChangesNothing(t *testing.T) {
	ta := newTestAgent(t, 2, observing)
	ta.startd.version = condor.Version{Major: 9} // it offers no shares, so any will do
	v := ta.apply(true)
	if !v.plan.Observe || len(v.plan.GPUs) != 2 || v.closed != "" || v.configError != "" || len(v.problems) > 0 {
		t.Fatalf("%+v", v)
	}
	if ta.daemons.sets > 0 || len(ta.hw.modes) > 0 || ta.access.calls > 0 || v.can.Tried {
		t.Errorf("something was set up: control daemons %d times, compute modes %v", ta.daemons.sets, ta.hw.modes)
	}
	for path := range ta.files() {
		if !strings.HasSuffix(path, "/gpuslot.toml") && !strings.HasSuffix(path, "/plan.json") {
			t.Errorf("it wrote %s", path)
		}
	}
	if said := ta.answers.acceptances(); len(said) > 0 {
		t.Errorf("the startd hears %+v", said)
	}
	if s := ta.status(); !s.Observe || !s.GPUs[0].Accept || len(s.MissingEnforcement) > 0 || len(s.MPS) > 0 || len(s.Warnings) > 1 { // that of the test's directory
		t.Errorf("%+v", s)
	}
	hook := starter.Caller{Hook: true, Starter: ta.proc.starter(100, "slot1_1")}
	refusal := ta.prepare(hook, &api.Job{AssignedGPUs: []string{string(uuid(0))}}).Refusal
	if refusal == nil || !refusal.Requeue || !strings.Contains(refusal.Reason, "restart HTCondor") {
		t.Errorf("a hook of an earlier mode hears %+v", refusal)
	}
	_, errClose := ta.answers.closeGPU(api.Request{GPU: "all", Reason: "x"})
	_, errNode := ta.answers.askNode(api.Request{Verb: api.VerbQuiesce, Reason: "x"})
	_, errVerify := ta.answers.verify(t.Context(), "")
	for _, err := range []error{errClose, errNode, errVerify} {
		if err == nil || !strings.Contains(err.Error(), `mode = "observe"`) {
			t.Errorf("an operator hears %v", err)
		}
	}
}

// A node begins and ceases to be observed between two agents, and begins only when
// nothing of the mode before is left. One whose GPUs are gone is observed still.
func TestObserveBeginsAndEnds(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.writeConfig(observing)
	if v := ta.apply(true); v.plan.Observe || !strings.Contains(v.configError, "gpuslotd --release") {
		t.Errorf("under running control daemons: %q", v.configError)
	}
	ta.restart()
	if v := ta.view.Load(); v.planned || !strings.Contains(v.configError, "execution-point.conf") {
		t.Errorf("with the files of the mode before: %q", v.configError)
	}
	if err := Release(t.Context(), ta.options(), false); err != nil {
		t.Fatal(err)
	}
	ta.restart()
	if v := ta.view.Load(); !v.plan.Observe || v.configError != "" {
		t.Fatalf("after a release: %q", v.configError)
	}
	ta.hw.set(inventoryOf(0), nil)
	if v := ta.apply(false); !v.plan.Observe {
		t.Error("without its GPUs the node would be set up")
	}
	ta.hw.set(inventoryOf(1), nil)
	ta.writeConfig("")
	if v := ta.apply(true); !v.plan.Observe || !strings.Contains(v.configError, "restart gpuslotd") {
		t.Errorf("back, under the jobs of HTCondor: %q", v.configError)
	}
	ta.restart()
	if v := ta.view.Load(); v.plan.Observe || v.configError != "" {
		t.Errorf("back, by a restart: %q", v.configError)
	}
}

// stockAd is an ad of HTCondor's own configuration; the GPUs of the tests begin alike,
// so that the short ids alone do not tell which it is.
func stockAd(name, job string, pid int64, gpus ...int) condor.Slot {
	var ids []string
	device := ""
	for _, n := range gpus {
		ids, device = append(ids, short(n)), uuid(n).Bare()
	}
	return condor.Slot{DeviceUUID: device, Name: name + "@wn1.example.org", Type: "Dynamic", State: "Claimed", JobID: job, RemoteOwner: "alice@example.org",
		AccountingGroup: "atlas.prod", Schedd: "ap.example.org", AssignedGPUs: ids, GPUs: int64(len(ids)), Cpus: 2, Memory: 2048, StarterPID: pid}
}

// short is a UUID as condor_gpu_discovery prints it.
func short(n int) string { return string(uuid(n))[:12] }

// A job is known by its starter, and by the startd's word on the starter's slot. An
// ad of another job, of a job that has ended, or without one, is not taken.
func TestObservedJobs(t *testing.T) {
	ta := newTestAgent(t, 2, observing)
	seen := &starter.Arrivals{}
	look := func(ads ...condor.Slot) {
		ta.startd.set(ads, nil)
		ta.jobs.Discover(ta.proc.arrived(t, seen, time.Now()))
		ta.startds.Ask(t.Context())
	}
	ta.proc.starter(100, "slot1_1")
	look(stockAd("slot1_1", "", 100, 0))
	look(stockAd("slot1_1", "7.0", 99, 0))
	if all := ta.jobs.Running(); len(all) > 0 {
		t.Fatalf("taken from another job's ad: %+v", all)
	}
	look(stockAd("slot1_1", "8.0", 100, 0))
	ta.proc.starter(200, "slot1_2") // has no GPU
	look(stockAd("slot1_1", "8.0", 100, 0), stockAd("slot1_2", "9.0", 200))
	all := ta.jobs.Running()
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	r := all[0]
	if r.GPU != uuid(0) || r.ID != "8.0" || r.Owner != "alice" || r.Group != "atlas.prod" || r.Adopted || !r.Confirmed || r.Beside || r.EnforcedBy != "" {
		t.Errorf("%+v", r)
	}
	if ta.jobs.Unknown() != "" {
		t.Errorf("a job without GPUs stays open: %s", ta.jobs.Unknown())
	}
	ta.proc.starter(300, "slot1_3") // of a site that divides its GPUs by itself
	look(stockAd("slot1_3", "10.0", 300, 0))
	if all := ta.jobs.Running(); len(all) != 2 || !all[0].Beside || !all[1].Beside {
		t.Errorf("two jobs on one GPU: %+v", all)
	}
	docker := stockAd("slot1_3", "10.0", 300, 0)
	docker.Docker = true
	if look(docker); !ta.entry("slot1_3").Work.Docker {
		t.Error("a docker universe job is not known as one")
	}
	ta.proc.End(300)
	ta.sweeper.now()
	ta.proc.starter(400, "slot1_3") // the same slot's next job
	look(stockAd("slot1_3", "11.0", 400, 1))
	if r := ta.entry("slot1_3"); r.ID != "11.0" || r.GPU != uuid(1) || r.Beside {
		t.Errorf("%+v", r)
	}
}

// Processes are their job's from the first sample on, before the startd tells of it.
func TestObservedProcessesBeforeTheStartdTells(t *testing.T) {
	ta := newTestAgent(t, 1, observing)
	s := ta.proc.starter(100, "slot1_1")
	ta.proc.Add(proctree.Process{PID: 101, Parent: 100, Comm: "python3", Cgroup: proctree.CgroupOf("slot1_1")})
	r := gpu.Reading{GPU: uuid(0), At: time.Now().Add(time.Hour)}
	r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: 101}})
	ta.reads(&fakeUsage{[]gpu.Reading{r}})
	ta.sampling.Round(t.Context())
	if all := ta.sampling.Last().Slots; len(all) > 0 {
		t.Errorf("nobody has seen the starter yet: %+v", all)
	}
	ta.jobs.Discover(ta.proc.arrived(t, &starter.Arrivals{}, time.Now()))
	ta.sampling.Round(t.Context())
	if all := ta.sampling.Last().Slots; len(all) != 1 || all[0].Slot != rules.SlotKey(s) {
		t.Errorf("%+v", all)
	}
}

// The record of an observed job: its run time by the kernel, the whole GPU as its
// share, no wall and no budget.
func TestRecordOfAnObservedJob(t *testing.T) {
	ta := newTestAgent(t, 1, observing)
	now := time.Now()
	ticks, err := process.TicksAt(now)
	if err != nil {
		t.Skip(err)
	}
	begin := process.Began(ticks-30*process.TicksPerSecond, now)
	if d := now.Sub(begin); d < 29*time.Second || d > 31*time.Second {
		t.Errorf("thirty seconds of ticks are %v", d)
	}
	ta.proc.starter(100, "slot1_1")
	ta.startd.set([]condor.Slot{stockAd("slot1_1", "8.0", 100, 0)}, nil)
	ta.jobs.Discover(ta.proc.arrived(t, &starter.Arrivals{}, now))
	ta.startds.Ask(t.Context())
	r := ta.entry("slot1_1")
	got := ta.sampling.Record(r, now)
	gpus, cpus, memory := 1.0, 2.0, int64(2048)
	if got.Mode != "observe" || got.Share != 1 || got.EnforcedBy != "" || got.BudgetMiB != 0 || got.Partial || got.Schedd != "ap.example.org" ||
		*got.Requested.GPUs != gpus || *got.Requested.CPUs != cpus || *got.Requested.MemoryMiB != memory || got.Requested.VRAMMiB != nil {
		t.Errorf("%+v", got)
	}
	r.Beside = true
	if got := ta.sampling.Record(r, now); got.Share != 0 {
		t.Errorf("beside another job the share is not known: %+v", got)
	}
}

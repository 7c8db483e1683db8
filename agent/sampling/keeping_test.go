package sampling

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/keepers"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeKeepers answer as the test says. A job in slow has no answer yet.
type fakeKeepers struct {
	jobs    map[starter.Starter]keepers.Held
	outside keepers.Held
	slow    map[starter.Starter]chan struct{}
}

func (f *fakeKeepers) OfJob(s starter.Starter, _ []process.ID) deep.Looking[keepers.Held] {
	if done := f.slow[s]; done != nil {
		return deep.Begin("a slow look at "+s.Slot, func() keepers.Held { <-done; return keepers.Held{} })
	}
	return deep.Known(f.jobs[s])
}

func (f *fakeKeepers) Opens(int) func(gpu.UUID) bool { return nil }

func (f *fakeKeepers) OutsideJobs([]process.ID) deep.Looking[keepers.Held] {
	return deep.Known(f.outside)
}

// keptNode has jobs of two accounts on a GPU of 32 GiB, each with one process of 1000 MiB.
func keptNode(t *testing.T) (*fakeNode, *fakeKeepers, [2]jobs.Job) {
	t.Helper()
	n, f := newNode(t, 1), &fakeKeepers{jobs: map[starter.Starter]keepers.Held{}, slow: map[starter.Starter]chan struct{}{}}
	n.loop.keepers = keepers.New(f, n.loop.Processes.Runs)
	its := [2]jobs.Job{n.job(100, "slot1_1", uuid(0)), n.job(200, "slot1_2", uuid(0))}
	for i := range n.running {
		n.running[i].Account = starter.Account{UID: uint32(1000 + i), Known: true}
	}
	n.unlisted(0)
	n.samples(t, 3) // three readings show it
	return n, f, its
}

// unlisted has so many MiB of the GPU in use by nobody whom NVML lists; the jobs' processes are listed.
func (n *fakeNode) unlisted(mib int64, processes ...gpu.DeviceProcess) {
	if processes == nil {
		processes = []gpu.DeviceProcess{uses(101, 1000), uses(201, 1000)}
	}
	listed := int64(26)
	for _, p := range processes {
		listed += int64(p.Memory.Value.MiB())
	}
	n.readings[0] = reading(uuid(0), processes...)
	n.readings[0].Memory = gpu.Known(gpu.MemoryUse{Total: 32 << 30, Reserved: gpu.Known(gpu.Bytes(0)), Used: gpu.Bytes((listed + mib) << 20)})
}

// samples takes so many.
func (n *fakeNode) samples(t *testing.T, count int) {
	t.Helper()
	for range count {
		n.sample(t)
	}
}

// held are the slots of the jobs that were found to be over their budgets.
func (n *fakeNode) held() (slots []string) {
	for _, f := range n.punished {
		if f.Code == api.CodeOverBudget && !slices.Contains(slots, f.Starter.Slot) {
			slots = append(slots, f.Starter.Slot)
		}
	}
	slices.Sort(slots)
	return slots
}

func held(all ...keepers.Holder) keepers.Held { return keepers.Held{Holders: all} }

func holder(pid int) keepers.Holder {
	return keepers.Holder{ID: process.ID{PID: pid, Started: 1}, Own: true}
}

// unknown is one of which the kernel does not say whose open files it has.
func unknown(pid int) keepers.Holder {
	return keepers.Holder{ID: process.ID{PID: pid, Started: 1}, Unknown: true}
}

func bare(pid int) keepers.Holder {
	h := holder(pid)
	h.Bare = true
	return h
}

// TestKeptMemory: unlisted memory counts for the job whose process is shown to keep it, and for no other.
func TestKeptMemory(t *testing.T) {
	const enough = 20
	for name, c := range map[string]struct {
		first, second keepers.Held
		mib           int64
		want          []string
	}{
		"one with /dev/nvidia-uvm alone":                  {held(bare(111)), held(), 10000, []string{"slot1_1"}},
		"beside one that called cuInit":                   {held(bare(111)), held(holder(211)), 10000, []string{"slot1_1"}},
		"within the budget":                               {held(bare(111)), held(), 3000, nil},
		"both that called cuInit":                         {held(holder(111)), held(holder(211)), 10000, nil},
		"a listed one with many of its files":             {held(keepers.Holder{ID: process.ID{PID: 111, Started: 1}, Many: true}), held(), 10000, []string{"slot1_1"}},
		"one that called cuInit":                          {held(holder(111)), held(), 10000, nil},
		"forks of a listed process":                       {held(keepers.Holder{ID: process.ID{PID: 111, Started: 1}, With: []process.ID{{PID: 101, Started: 1}}}), held(), 10000, nil},
		"two keep more than both may have":                {held(bare(111)), held(bare(211)), 10000, []string{"slot1_1", "slot1_2"}},
		"two keep no more than both may have":             {held(bare(111)), held(bare(211)), 6000, nil},
		"one keeps it, and what another has is not known": {held(bare(111)), keepers.Held{Err: process.ErrManyFiles}, 10000, []string{"slot1_1"}},
	} {
		n, f, its := keptNode(t)
		n.samples(t, 3)
		f.jobs[its[0].Starter], f.jobs[its[1].Starter] = c.first, c.second
		n.unlisted(c.mib)
		if n.samples(t, enough); !slices.Equal(n.held(), c.want) {
			t.Errorf("%s: held %v, want %v", name, n.held(), c.want)
		}
		if len(c.want) > 0 && !strings.Contains(n.punished[0].Reason, "process 111 keeps /dev/nvidia-uvm open") {
			t.Errorf("%s: %s", name, n.punished[0].Reason)
		}
		if why := n.loop.Unlisted(n.node, uuid(0), n.clock).String(); (len(c.want) > 0) != strings.Contains(why, "keeps it") && c.mib > 9000 {
			t.Errorf("%s: the status says %q", name, why)
		}
	}
}

// TestKeptBrieflyOrHidden: three looks in a row must show it, and who was shown to keep it keeps it wherever he puts
// it, until the memory is free.
func TestKeptBrieflyOrHidden(t *testing.T) {
	n, f, its := keptNode(t)
	n.unlisted(10000)
	for range 20 {
		f.jobs[its[0].Starter] = held(bare(111))
		n.samples(t, 2)
		f.jobs[its[0].Starter] = held(holder(111))
		n.samples(t, 1)
	}
	if len(n.held()) > 0 {
		t.Fatalf("held %v for a file that is closed soon", n.held())
	}
	f.jobs[its[0].Starter] = held(bare(111))
	n.samples(t, 3)
	f.jobs[its[0].Starter] = held()
	if n.samples(t, 20); !slices.Equal(n.held(), []string{"slot1_1"}) {
		t.Errorf("held %v", n.held())
	}
	n.punished = nil
	n.unlisted(0)
	n.samples(t, 20)
	n.unlisted(10000)
	if n.samples(t, 20); len(n.held()) > 0 {
		t.Errorf("held %v for what came later", n.held())
	}
}

// TestKeptAfterSharing: a process that has the open file of a listed one, which ends and is listed no more, keeps
// its memory, also with all other files of the driver open.
func TestKeptAfterSharing(t *testing.T) {
	for name, c := range map[string]struct {
		after []gpu.DeviceProcess
		ends  bool
		want  []string
	}{
		"it has ended":                           {[]gpu.DeviceProcess{uses(101, 1000), uses(201, 1000)}, true, []string{"slot1_1"}},
		"it has ended, and is listed":            {[]gpu.DeviceProcess{uses(101, 1000), uses(201, 1000), uses(111, 10)}, true, nil},
		"it runs, and has destroyed its context": {[]gpu.DeviceProcess{uses(101, 1000), uses(201, 1000)}, false, nil},
	} {
		n, f, its := keptNode(t)
		n.process(111, 100)
		n.starters[111] = its[0].Starter
		child := keepers.Holder{ID: process.ID{PID: 112, Started: 1}, With: []process.ID{{PID: 111, Started: proctree.StartOf(111)}}}
		f.jobs[its[0].Starter] = held(child, holder(113)) // which keeps what came first
		n.unlisted(1000, uses(101, 1000), uses(201, 1000), uses(111, 10))
		n.samples(t, 5)
		if c.ends {
			n.proc.End(111)
		}
		child.With, child.Own = nil, true
		f.jobs[its[0].Starter] = held(child, holder(113))
		n.unlisted(10000, c.after...)
		if n.samples(t, 20); !slices.Equal(n.held(), c.want) {
			t.Errorf("%s: held %v, want %v", name, n.held(), c.want)
		}
	}
}

// TestUnlistedOfTheDevice: what is unlisted while nobody can keep it is the device's own. Where that is not known it
// may not be.
func TestUnlistedOfTheDevice(t *testing.T) {
	n, f, its := keptNode(t)
	n.unlisted(10000)
	n.samples(t, 5) // nobody has the node open
	f.jobs[its[0].Starter] = held(bare(111))
	if n.samples(t, 20); len(n.held()) > 0 {
		t.Errorf("held %v for what was there before", n.held())
	}
	n.unlisted(14000)
	if n.samples(t, 20); !slices.Equal(n.held(), []string{"slot1_1"}) {
		t.Errorf("4000 MiB more: held %v", n.held())
	}
}

// TestSlowLookForKeepers: no sample waits for a look, and what is not known holds no job.
func TestSlowLookForKeepers(t *testing.T) {
	n, f, its := keptNode(t)
	done := make(chan struct{})
	n.loop.Patience, f.slow[its[0].Starter] = 1, done
	f.jobs[its[1].Starter] = held(bare(211))
	n.unlisted(10000)
	if n.samples(t, 20); !slices.Equal(n.held(), []string{"slot1_2"}) {
		t.Errorf("held %v", n.held())
	}
	close(done)
}

// TestKeptBeforeTheStart: what a device uses when gpuslotd first sees it counts for no job that runs there then.
func TestKeptBeforeTheStart(t *testing.T) {
	n, f, its := keptNode(t)
	n.unlisted(10000)
	n.samples(t, 3)
	n.loop.keepers = keepers.New(f, n.loop.Processes.Runs) // it starts again
	f.jobs[its[0].Starter] = held(bare(111))
	if n.samples(t, 20); len(n.held()) > 0 {
		t.Errorf("held %v for what was there before", n.held())
	}
	n.unlisted(20000)
	if n.samples(t, 20); !slices.Equal(n.held(), []string{"slot1_1"}) {
		t.Errorf("held %v for what came later", n.held())
	}
}

// TestHiddenHoldsNobody: jobs do not answer for memory that none of them is shown to keep, whoever may keep it. It is
// taken from what new jobs get.
func TestHiddenHoldsNobody(t *testing.T) {
	for name, c := range map[string]keepers.Held{
		"nobody": held(), "one that may": held(holder(111)), "not known": held(unknown(111)), "too many": {Err: process.ErrManyFiles},
	} {
		n, f, its := keptNode(t)
		f.jobs[its[0].Starter] = c
		n.unlisted(20000)
		if n.samples(t, 50); len(n.held()) > 0 || len(n.outsideKills) > 0 {
			t.Errorf("%s: held %v, killed %v", name, n.held(), n.outsideKills)
		}
		if why := n.loop.Unlisted(n.node, uuid(0), n.clock).String(); !strings.Contains(why, "20000 MiB of its VRAM are in use") {
			t.Errorf("%s: the status says %q", name, why)
		}
	}
}

// TestKeepersOutsideOfJobs: who has files of the driver outside of jobs is killed after three looks, while memory is
// kept or a process is listed after its end.
func TestKeepersOutsideOfJobs(t *testing.T) {
	for _, ended := range []bool{false, true} {
		n, f, _ := keptNode(t)
		at := func(pid int) keepers.Held {
			h := holder(pid)
			h.Started, h.Memory = proctree.StartOf(pid), !ended
			return held(h)
		}
		f.outside = at(301)
		if n.samples(t, 20); len(n.outsideKills) > 0 {
			t.Errorf("killed %v, and nothing is kept", n.outsideKills)
		}
		n.unlisted(10000)
		if ended {
			n.unlisted(0, uses(101, 1000), uses(201, 1000), uses(999, 10000))
		}
		n.samples(t, 2)
		if len(n.outsideKills) > 0 {
			t.Errorf("ended %t: killed %v at once", ended, n.outsideKills)
		}
		if n.samples(t, 5); len(n.outsideKills) == 0 || n.outsideKills[0] != 301 {
			t.Errorf("ended %t: killed %v", ended, n.outsideKills)
		}
		n.unlisted(0)
		n.samples(t, 3)
		n.outsideKills, f.outside = nil, at(301)
		if n.samples(t, 50); len(n.outsideKills) > 0 {
			t.Errorf("ended %t: killed %v when nothing was kept any more", ended, n.outsideKills)
		}
		if len(n.held()) > 0 {
			t.Errorf("held %v", n.held())
		}
	}
}

// TestOutsideUnharmed: gpuslotd kills no process outside of jobs while a job keeps the memory within its budget. It
// never kills a process that only asks NVML for unlisted memory.
func TestOutsideUnharmed(t *testing.T) {
	for name, c := range map[string]struct {
		inJob, memory bool
		mib           int64
		killed        bool
	}{
		"within the job's budget":                {inJob: true, memory: true, mib: 3000},
		"more than the job may have":             {inJob: true, memory: true, mib: 10000, killed: true},
		"no job keeps it":                        {memory: true, mib: 3000, killed: true},
		"no job keeps it, one outside asks NVML": {mib: 3000},
	} {
		n, f, its := keptNode(t)
		if c.inJob {
			f.jobs[its[0].Starter] = held(bare(111))
		}
		f.outside = held(keepers.Holder{ID: process.ID{PID: 301, Started: 1}})
		if c.memory {
			f.outside.Holders = append(f.outside.Holders, keepers.Holder{ID: process.ID{PID: 302, Started: 1}, Memory: true})
		}
		n.unlisted(c.mib)
		if n.samples(t, 20); c.killed != slices.Contains(n.outsideKills, 302) || slices.Contains(n.outsideKills, 301) {
			t.Errorf("%s: killed %v", name, n.outsideKills)
		}
		if own := !n.loop.keepers.May(keptOn(&n.node.Plan.GPUs[0])); own == (c.inJob || c.memory) {
			t.Errorf("%s: the memory counts as the device's own: %t", name, own)
		}
	}
}

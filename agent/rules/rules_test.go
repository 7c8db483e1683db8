package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

const mib = 1 << 20

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

func defaultRules() Rules {
	c := config.Default()
	return Rules{Budgets: c.Budgets, Unattached: c.Health.Unattached, AttachWithin: c.Health.AttachWithin}
}

func jobUsing(used gpu.MiB) Job {
	return Job{
		Job:    jobs.Job{Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}, GPU: uuid(0), Budget: 4096, ID: "7.0"},
		Memory: gpu.Known(gpu.Bytes(used * mib)), PIDs: []int{200}, Known: true, MostClients: 6, Largest: 16384, Quantum: 512,
	}
}

func TestJudge(t *testing.T) {
	start := time.Unix(1000, 0)
	unknown := jobUsing(9000)
	unknown.Memory = gpu.Measured[gpu.Bytes]{Value: 4096 * mib}
	atLeast := jobUsing(9000)
	atLeast.Memory.Known = false
	beside := jobUsing(100)
	beside.PIDs, beside.Beside = []int{200, 201}, []int{201}
	many := jobUsing(100)
	many.PIDs = []int{1, 2, 3, 4, 5, 6, 7}
	held := jobUsing(6200)
	held.ToBeHeld = true
	elsewhere := jobUsing(100)
	elsewhere.Elsewhere = []Stray{{300, uuid(1)}}
	unclear, left := jobUsing(100), jobUsing(100)
	unclear.Unclear, left.Outside = true, []int{200}
	leftAndMore := left
	leftAndMore.Unclear = true
	unclearElsewhere := jobUsing(100)
	unclearElsewhere.UnclearElsewhere = true
	type at struct {
		second int
		job    Job
	}
	for name, tt := range map[string]struct {
		samples []at
		code    int
		reason  string
	}{
		"within":                            {[]at{{0, jobUsing(4096)}, {60, jobUsing(4096)}}, 0, ""},
		"within tolerance":                  {[]at{{0, jobUsing(4352)}, {60, jobUsing(4352)}}, 0, ""},
		"over, in grace":                    {[]at{{0, jobUsing(4353)}, {9, jobUsing(4353)}}, 0, ""},
		"over, after grace":                 {[]at{{0, jobUsing(4353)}, {10, jobUsing(6200)}}, api.CodeOverBudget, "used 6200 MiB of 4096 MiB requested: ask for request_vram = 6656"},
		"over, then within":                 {[]at{{0, jobUsing(6200)}, {9, jobUsing(4096)}, {11, jobUsing(6200)}}, 0, ""},
		"over, to be held":                  {[]at{{0, held}}, api.CodeOverBudget, "used 6200 MiB"},
		"above the largest":                 {[]at{{0, jobUsing(17000)}, {10, jobUsing(17000)}}, api.CodeOverBudget, "used 17000 MiB of 4096 MiB requested, more than one job may have on " + string(uuid(0)) + " (16384 MiB): ask for a whole GPU"},
		"unknown":                           {[]at{{0, unknown}, {60, unknown}}, 0, ""},
		"over without one":                  {[]at{{0, atLeast}, {10, atLeast}}, api.CodeOverBudget, "used 9000 MiB"},
		"unknown in between":                {[]at{{0, jobUsing(6200)}, {5, unknown}, {10, jobUsing(6200)}}, api.CodeOverBudget, "used 6200 MiB"},
		"unknown for long in between":       {[]at{{0, jobUsing(6200)}, {1, unknown}, {60, unknown}, {119, unknown}, {120, jobUsing(6200)}}, 0, ""},
		"unknown at the end":                {[]at{{0, jobUsing(6200)}, {10, unknown}}, 0, ""},
		"beside the daemon":                 {[]at{{0, beside}, {30, beside}}, api.CodeUnattached, "process 201 of the job computes"},
		"beside, for a while":               {[]at{{0, beside}, {29, beside}}, 0, ""},
		"may be outside":                    {[]at{{0, unclear}, {60, unclear}}, 0, ""},
		"left, then unclear":                {[]at{{0, left}, {5, unclear}, {10, left}}, api.CodeLeftCgroup, "process 200 of the job computes"},
		"left, then unclear for long":       {[]at{{0, left}, {30, unclear}, {60, unclear}, {61, left}}, 0, ""},
		"left, then not":                    {[]at{{0, left}, {5, jobUsing(100)}, {10, left}}, 0, ""},
		"left, then not, unclear elsewhere": {[]at{{0, left}, {5, unclearElsewhere}, {10, left}}, 0, ""},
		"another GPU, then unclear there": {[]at{{0, elsewhere}, {5, unclearElsewhere}, {10, elsewhere}}, api.CodeOtherGPU,
			"process 300 of the job computes"},
		"another GPU, then unclear on its own": {[]at{{0, elsewhere}, {5, unclear}, {10, elsewhere}}, 0, ""},
		"left, and more may":                   {[]at{{0, leftAndMore}, {10, leftAndMore}}, api.CodeLeftCgroup, "process 200 of the job computes"},
		"another GPU":                          {[]at{{0, elsewhere}, {10, elsewhere}}, api.CodeOtherGPU, "process 300 of the job computes on " + string(uuid(1)) + ", and its slot holds " + string(uuid(0))},
		"too many clients":                     {[]at{{0, many}, {10, many}}, api.CodeTooManyClients, "7 processes of the job use " + string(uuid(0)) + ", and one share serves at most 6"},
	} {
		t.Run(name, func(t *testing.T) {
			b, found := Breaches{}, []Finding(nil)
			for _, s := range tt.samples {
				b, found = b.Judge([]Job{s.job}, defaultRules(), start.Add(time.Duration(s.second)*time.Second))
			}
			if tt.code == 0 {
				if len(found) > 0 {
					t.Errorf("found %d: %s", found[0].Code, found[0].Reason)
				}
				return
			}
			if len(found) != 1 || found[0].Code != tt.code || !strings.HasPrefix(found[0].Reason, tt.reason) || !found[0].First {
				t.Errorf("found %+v, want code %d, %q", found, tt.code, tt.reason)
			}
			_, again := b.Judge([]Job{tt.samples[len(tt.samples)-1].job}, defaultRules(), start.Add(time.Hour))
			if len(again) != 1 || again[0].First {
				t.Errorf("the next sample says %+v", again)
			}
		})
	}
}

// TestNobodyIsHeldUnjustly: whatever the samples, a job is found only if in some time up to now
// it was over its budget for longer than within it, by the grace time. One that was over in an
// unbroken row of known samples for the grace time is found.
func TestNobodyIsHeldUnjustly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Breaches{}
		limit, grace := defaultRules().Budgets.Limit(4096), defaultRules().Budgets.Grace
		var known []look
		now, gap := time.Unix(1000, 0), false
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			now = now.Add(time.Duration(rapid.IntRange(1, 7).Draw(t, "seconds")) * time.Second)
			j := jobUsing(gpu.MiB(rapid.SampledFrom([]int{0, 4096, int(limit), int(limit) + 1, 9000}).Draw(t, "used")))
			j.Memory.Known = rapid.Bool().Draw(t, "known")
			if rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
				b, known = Breaches{}, nil
			}
			var found []Finding
			b, found = b.Judge([]Job{j}, defaultRules(), now)
			over := j.Memory.Value.MiB() > limit // at least that
			if j.Memory.Known || over {
				known = append(known, look{now, over, gap})
			}
			gap = !j.Memory.Known && !over
			got := slices.ContainsFunc(found, func(f Finding) bool { return f.Code == api.CodeOverBudget })
			if got && (!over || mostOver(known) < grace) {
				t.Fatalf("found, though over=%v and %s at most", over, mostOver(known))
			}
			if !got && over && rowOver(known) >= grace {
				t.Fatalf("not found, though over for %s", rowOver(known))
			}
		}
	})
}

// look is a sample with a known value.
type look struct {
	at   time.Time
	over bool
	// gap: a sample before it was not known.
	gap bool
}

// mostOver is the largest difference, over all times that end now, between the time over the
// budget and the time within it.
func mostOver(looks []look) (most time.Duration) {
	var sum time.Duration
	for i := len(looks) - 1; i > 0; i-- {
		took := looks[i].at.Sub(looks[i-1].at)
		switch {
		case looks[i].over != looks[i-1].over:
		case looks[i].over:
			sum += took
		default:
			sum -= took
		}
		most = max(most, sum)
	}
	return most
}

// rowOver is how long the last samples in a row were known to be over.
func rowOver(looks []look) time.Duration {
	first := len(looks) - 1
	for first > 0 && looks[first-1].over && !looks[first].gap {
		first--
	}
	return looks[len(looks)-1].at.Sub(looks[first].at)
}

// TestMostOfTheTime: a job with one sample within its budget in each grace time is found, and
// one whose peaks are shorter than the grace time is not, if as much time is between them.
func TestMostOfTheTime(t *testing.T) {
	for name, tt := range map[string]struct {
		over, within int
		want         bool
	}{
		"a dip in each grace time":     {9, 1, true},
		"over for two thirds":          {6, 3, true},
		"over in two samples of three": {2, 1, true},
		"peaks of half of the time":    {8, 8, false},
		"a peak now and then":          {9, 30, false},
		"every second sample":          {1, 1, false},
	} {
		b, found, now := Breaches{}, []Finding(nil), time.Unix(1000, 0)
		for i := 0; i < 300 && len(found) == 0; i++ {
			j := jobUsing(4096)
			if i%(tt.over+tt.within) < tt.over {
				j = jobUsing(6200)
			}
			b, found = b.Judge([]Job{j}, defaultRules(), now)
			now = now.Add(time.Second)
		}
		if got := len(found) > 0; got != tt.want {
			t.Errorf("%s: found %v, want %v", name, got, tt.want)
		}
	}
}

// TestOneBreach: a dip in a breach that was found does not make it a new one.
func TestOneBreach(t *testing.T) {
	b, now, first := Breaches{}, time.Unix(1000, 0), 0
	for i := range 60 {
		j := jobUsing(6200)
		if i%10 == 9 {
			j = jobUsing(4096)
		}
		var found []Finding
		b, found = b.Judge([]Job{j}, defaultRules(), now)
		for _, f := range found {
			if f.First {
				first++
			}
		}
		now = now.Add(time.Second)
	}
	if first != 1 {
		t.Errorf("%d findings are first ones", first)
	}
	for range 30 {
		b, _ = b.Judge([]Job{jobUsing(100)}, defaultRules(), now)
		now = now.Add(time.Second)
	}
	if len(b) > 0 {
		t.Errorf("a job long within its budget still has %v", b)
	}
}

// TestStrays: a process counts for its own slot only, and only where the slot
// holds nothing.
func TestStrays(t *testing.T) {
	mine, other := starter.Starter{ID: process.ID{PID: 1}, Slot: "slot1_1"}, starter.Starter{ID: process.ID{PID: 2}, Slot: "slot1_2"}
	on := func(u gpu.UUID, pids map[int]starter.Starter) usage.DeviceUsage {
		d := usage.DeviceUsage{Device: usage.Device{GPU: u}, Processes: gpu.Known([]usage.Process{})}
		for pid, s := range pids {
			d.Processes.Value = append(d.Processes.Value, usage.Process{DeviceProcess: gpu.DeviceProcess{PID: pid}, Owner: usage.OwnerSlot, Slot: SlotKey(s)})
		}
		return d
	}
	snap := &usage.Snapshot{Devices: []usage.DeviceUsage{on(uuid(0), map[int]starter.Starter{10: mine, 20: other}), on(uuid(1), map[int]starter.Starter{11: mine})}}
	running := []jobs.Job{{Starter: mine, GPU: uuid(0)}, {Starter: other, GPU: uuid(0)}}
	if got := strays(sightings(snap)[SlotKey(mine)], &plan.Plan{}, holdings(running)[SlotKey(mine)]); !slices.Equal(got, []Stray{{11, uuid(1)}}) {
		t.Errorf("strays = %+v", got)
	}
	if got := strays(sightings(snap)[SlotKey(other)], &plan.Plan{}, holdings(running)[SlotKey(other)]); len(got) > 0 {
		t.Errorf("strays of the other = %+v", got)
	}
}

// TestUnattached: a process in a container without the pipe directory is told apart from one
// that merely dropped it.
func TestUnattached(t *testing.T) {
	j := jobUsing(100)
	j.Beside, j.Pipes = []int{200, 201}, "/run/gpuslot/mps/GPU-1"
	if why := (Finding{Job: j}).WithBlind([]int{201}).Reason; !strings.Contains(why, "process 201 ") || !strings.Contains(why, "--bind "+j.Pipes) {
		t.Error(why)
	}
	if why := j.unattached(); strings.Contains(why, "--bind") || !strings.Contains(why, "200") {
		t.Error(why)
	}
}

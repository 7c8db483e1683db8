package layouts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

var (
	wantsAll = condor.Waiting{GPUs: 1, VRAM: 39000, Jobs: 1, Waits: 90000}
	wantsOne = condor.Waiting{GPUs: 1, VRAM: 4096, Jobs: 50, Waits: 60}
)

// fourHours is one GPU on which small jobs of an hour each always wait, beside one that never starts and wants
// all of it. It returns for how many of the looks, one each two minutes, it had no job. Whole says whether a
// job of three minutes has all of it from a look on.
func fourHours(t *testing.T, waiting []condor.Waiting, whole func(look int) bool) (looks, empty int) {
	n := newNode(t, `["1g.5gb*7", "7g.40gb"]`, "repartition = \"auto\"\n[repartition]\nreserve_after = \"30m\"\n")
	var ends []time.Time
	for looks = range 4 * 30 {
		now := time.Now()
		for i := len(ends) - 1; i >= 0; i-- {
			if !now.Before(ends[i]) {
				n.running, ends = slices.Delete(n.running, i, i+1), slices.Delete(ends, i, i+1)
			}
		}
		out := n.ask(waiting...)
		for i, g := range n.plan.GPUs {
			busy := slices.ContainsFunc(n.running, func(j jobs.Job) bool { return j.Device == g.Device })
			below, large := out.Below[g.UUID], g.Profile == "7g.40gb"
			if g.Device == "" || busy || n.Leaving()[g.UUID] != "" || below != (plan.GPU{}) && below.Pool >= 4096 && !large {
				continue
			}
			switch {
			case !large:
				ends = append(ends, now.Add(time.Hour))
			case whole != nil && whole(looks):
				ends = append(ends, now.Add(3*time.Minute))
			case below.Pool >= 4096 || whole != nil:
				continue
			default: // a small job may have the large device, too
				ends = append(ends, now.Add(time.Hour))
			}
			n.job(fmt.Sprintf("slot1_%d", i+1), g.Place)
		}
		if len(n.running) == 0 {
			empty++
		}
		time.Sleep(2 * time.Minute)
	}
	return looks + 1, empty
}

// TestJobThatNeverStarts: a job that waits without end and matches nothing keeps a GPU from small ones for a
// small part of the time, also if its user has short jobs run there.
func TestJobThatNeverStarts(t *testing.T) {
	for name, whole := range map[string]func(int) bool{
		"alone":           nil,
		"with short jobs": func(look int) bool { return look%4 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if looks, empty := fourHours(t, []condor.Waiting{wantsAll, wantsOne}, whole); 10*empty > looks {
					t.Errorf("empty for %d of %d looks", empty, looks)
				}
			})
		})
	}
}

// TestIdleDeviceThatIsClosed says nothing of the jobs that wait for it.
func TestIdleDeviceThatIsClosed(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	n.ask(wantsThree)
	n.ask(wantsThree)
	at := n.now()
	for _, closed := range []bool{true, false} {
		at.Closed = map[gpu.UUID]bool{n.place("3g.20gb@4").UUID: closed}
		for range 6 {
			n.offers.at = time.Now().Add(-time.Hour)
			n.Answered(n.demand, nil)
			n.out = n.Round(t.Context(), at)
		}
		s := n.out.Repartition[0]
		if told := strings.Contains(n.log.String(), "no job came to an idle MIG device"); told == closed {
			t.Errorf("closed %t: it is logged that no job came: %t", closed, told)
		}
		if rests := strings.Contains(s.Why, "jobs for 3g.20gb do not count"); rests == closed || len(s.Demand) != 1 || s.Demand[0].Profile != "3g.20gb" {
			t.Errorf("closed %t: %+v", closed, s)
		}
	}
}

// TestAwaited: a device is for the largest profile that waits and is not larger than its own.
func TestAwaited(t *testing.T) {
	w := waits{
		profiles: []plan.GPU{{Profile: "1g.5gb"}, {Profile: "2g.10gb"}, {Profile: "3g.20gb"}, {Profile: "7g.40gb"}},
		by:       []api.StatusDemand{{Profile: "1g.5gb"}, {Profile: "2g.10gb", Jobs: 1}, {Profile: "7g.40gb", Jobs: 2}},
	}
	for device, want := range map[string]string{"1g.5gb": "", "2g.10gb": "2g.10gb", "3g.20gb": "2g.10gb", "7g.40gb": "7g.40gb", "4g.20gb": ""} {
		if got := w.awaited(device); got != want {
			t.Errorf("%s is for %q, want %q", device, got, want)
		}
	}
}

// TestOffers: how long devices have waited for work. A job takes time off it, a closed device gets none, and a look
// that comes late counts for a short time.
func TestOffers(t *testing.T) {
	place := func(slot, device gpu.UUID) plan.GPU {
		return plan.GPU{UUID: slot, Place: "3g.20gb", Profile: "3g.20gb", Parent: testGPU, Device: device}
	}
	n := &Node{Plan: plan.Plan{GPUs: []plan.GPU{place("place 1", "MIG-1"), place("place 2", "MIG-2")}}}
	now := time.Unix(1000, 0)
	o := offers{at: now}
	look := func(after time.Duration, busy, closed bool) (rest, late []string) {
		s := gpu.MIGState{MIGGPU: gpu.MIGGPU{Instances: []gpu.Instance{{}, device("MIG-9", gpu.Place{}), device("MIG-1", gpu.Place{}), device("MIG-2", gpu.Place{})}}}
		if busy {
			s.Instances[2].Holders = []gpu.Holder{{PID: 1}}
		}
		n.Closed = map[gpu.UUID]bool{"place 1": closed}
		w := waits{profiles: []plan.GPU{{Profile: "3g.20gb"}}, by: []api.StatusDemand{{Profile: "3g.20gb", Jobs: 1}}}
		now = now.Add(after)
		return o.look(n, map[gpu.UUID]gpu.MIGState{testGPU: s}, &w, now)
	}
	for i, c := range []struct {
		after        time.Duration
		busy, closed bool
		want         time.Duration
	}{
		{time.Minute, false, false, time.Minute}, {time.Hour, false, false, 3 * time.Minute}, {time.Minute, true, false, 2 * time.Minute},
		{time.Minute, false, true, 2 * time.Minute}, {time.Minute, true, true, time.Minute}, {2 * time.Minute, true, false, 0},
	} {
		if rest, late := look(c.after, c.busy, c.closed); o.idle["MIG-1"] != c.want || len(o.idle) != 2 || len(rest)+len(late) > 0 {
			t.Errorf("look %d: %v, want %s; %q rest, %q are late", i, o.idle, c.want, rest, late)
		}
	}
	if rest, late := look(time.Minute, false, false); len(rest) > 0 || len(late) > 0 {
		t.Errorf("before its time: %q rest, %q are late", rest, late)
	}
	o.idle = map[gpu.UUID]time.Duration{"MIG-1": offer - time.Minute, "MIG-2": offer}
	if rest, late := look(time.Minute, false, false); len(rest) > 0 || !slices.Equal(late, []string{"3g.20gb"}) || len(o.idle) > 0 {
		t.Errorf("in time: %q rest, %q are late, %v", rest, late, o.idle)
	}
	if rest, late := look(time.Minute, false, false); !slices.Equal(rest, []string{"3g.20gb"}) || len(late) > 0 || len(o.idle) > 0 {
		t.Errorf("after it: %q rest, %q are late, %v", rest, late, o.idle)
	}
}

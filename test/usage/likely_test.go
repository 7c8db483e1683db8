package usage

import (
	"math"
	"os/exec"
	"strconv"
	"testing"

	"github.com/gpuslot/gpuslot/agent/usage"
)

// shareOf is how a job of the four stands: its load, and when it comes, goes or begins to work,
// in minutes of the node's time.
type shareOf struct {
	load               int
	comes, works, gone int
}

// exclusiveRun is a job's activity and its watts beyond the idle GPU's, in a run of its own.
type exclusiveRun struct{ activity, watts float64 }

// Four jobs on a GPU with the settings of a new node: no thread percentages. They come one after
// another, one begins to work in the middle, one goes and another takes its share. The likely
// interval is narrower than half of the device's activity for most job-minutes and holds, and
// SM time and energy by share of activity are near what each job takes in a run of its own.
func TestFourJobsOfTheDefaults(t *testing.T) {
	onNode(t, func(n *node) {
		u := n.gpus[0].UUID
		d := usage.Device{GPU: u}
		s := n.sampler()
		idle := n.watts(s, d, 30)
		plans := []shareOf{{24, 0, 0, 60}, {20, 3, 3, 60}, {11, 6, 6, 40}, {24, 9, 30, 60}, {7, 41, 41, 60}}
		exclusive := make([]exclusiveRun, len(plans))
		for i, p := range plans {
			j := n.client("slot2_" + strconv.Itoa(i+1))
			n.loads(j, p.load)
			n.bookings = []usage.Reservation{{Slot: j.key, Device: d, Share: 1, MPS: true, Cap: 1}}
			for range 5 {
				n.second(s)
			}
			before, begin := n.s(s, j.key, d), s.Snapshot().At
			exclusive[i].watts = n.watts(s, d, 60) - idle
			after := n.s(s, j.key, d)
			exclusive[i].activity = (after.SM.Estimate.Value - before.SM.Estimate.Value) / s.Snapshot().At.Sub(begin).Seconds()
			n.unbook(j.key)
			j.stop()
			n.second(s)
			n.second(s)
		}
		n.four(s, d, plans, exclusive, idle)
	}, "H100-80")
}

// watts are the GPU's over so many seconds.
func (n *node) watts(s *usage.Sampler, d usage.Device, seconds int) float64 {
	first, _ := n.second(s).Device(d)
	var last usage.DeviceUsage
	for range seconds {
		last, _ = n.second(s).Device(d)
	}
	return (last.Total.Energy.Value - first.Total.Energy.Value) / last.At.Sub(first.At).Seconds()
}

// s are the sums of a job.
func (n *node) s(s *usage.Sampler, k usage.SlotKey, d usage.Device) usage.SlotTotals {
	u, _ := s.Snapshot().Last(k, d)
	return u.Job
}

// four plays the plans for an hour and compares minute by minute.
func (n *node) four(s *usage.Sampler, d usage.Device, plans []shareOf, exclusive []exclusiveRun, idle float64) {
	jobs := make([]*job, len(plans))
	worked, held := make([]float64, len(plans)), make([]float64, len(plans)) // seconds
	last := make([]usage.SlotTotals, len(plans))
	var narrow, holds, all int
	for minute := range 60 {
		for i, p := range plans {
			if minute == p.comes {
				jobs[i] = n.client("slot1_" + strconv.Itoa(i+1))
				n.bookings = append(n.bookings, usage.Reservation{Slot: jobs[i].key, Device: d, Share: 0.25, MPS: true, Cap: 1})
				n.loads(jobs[i], 0)
			}
			switch minute {
			case p.works:
				n.loads(jobs[i], p.load)
			case p.gone:
				n.unbook(jobs[i].key)
				jobs[i].stop()
			}
		}
		before, _ := s.Snapshot().Device(d)
		for range 60 {
			n.second(s)
		}
		after, _ := s.Snapshot().Device(d)
		took := after.At.Sub(before.At).Seconds()
		activity := after.Total.SM.Value - before.Total.SM.Value
		for i, p := range plans {
			if minute < p.comes || minute >= p.gone {
				continue
			}
			u := n.s(s, jobs[i].key, d)
			least := u.Likely.Lower.Value - last[i].Likely.Lower.Value
			most := u.Likely.Upper.Value - last[i].Likely.Upper.Value
			truth := 0.0
			if minute >= p.works {
				truth = exclusive[i].activity * took
				worked[i] += took
			}
			held[i] += took
			last[i] = u
			all++
			if most-least < activity/2 {
				narrow++
			}
			if least <= truth*(1+slack)+slack*took && truth*(1-slack)-slack*took <= most {
				holds++
			} else {
				n.Logf("minute %d, job %d: %.2f outside %.2f to %.2f", minute, i+1, truth, least, most)
			}
		}
	}
	n.compare(plans, exclusive, worked, held, last, idle)
	n.Logf("of %d job-minutes %.0f %% have a likely interval narrower than half of the device's activity; %.0f %% hold", all,
		100*float64(narrow)/float64(all), 100*float64(holds)/float64(all))
	if float64(narrow) < 0.8*float64(all) || float64(holds) < 0.95*float64(all) {
		n.Error("the intervals are too wide, or do not hold")
	}
}

// compare prints SM time and energy of each job beside its run alone. Energy is compared
// beyond what the GPU draws idle, which is divided by shares.
func (n *node) compare(plans []shareOf, exclusive []exclusiveRun, worked, held []float64, got []usage.SlotTotals, idle float64) {
	var off, of, offJoules, ofJoules float64
	for i := range plans {
		sm, joules := exclusive[i].activity*worked[i], exclusive[i].watts*worked[i]
		mine := got[i].Energy.Estimate.Value - idle*0.25*held[i]
		n.Logf("job %d: alone %.0f SM-seconds, beside others %.0f (%+.1f %%), likely %.0f to %.0f, bounds %.0f to %.0f; alone %.0f J, beside others %.0f J (%+.1f %%)",
			i+1, sm, got[i].SM.Estimate.Value, 100*(got[i].SM.Estimate.Value/sm-1), got[i].Likely.Lower.Value, got[i].Likely.Upper.Value,
			got[i].SM.Lower.Value, got[i].SM.Upper.Value, joules, mine, 100*(mine/joules-1))
		off, of = off+math.Abs(got[i].SM.Estimate.Value-sm), of+sm
		offJoules, ofJoules = offJoules+math.Abs(mine-joules), ofJoules+joules
	}
	n.Logf("the estimate of SM time is off by %.1f %%, energy by share of activity by %.1f %%", 100*off/of, 100*offJoules/ofJoules)
	if off > 0.15*of || offJoules > 0.15*ofJoules {
		n.Error("that is more than 15 %")
	}
}

// client is a process that the simulator takes for an MPS client, and loads gives it a load: it can
// end without harm to its neighbours, at any time.
func (n *node) client(slot string) *job {
	n.Helper()
	c := exec.Command("sleep", "3600")
	if err := c.Start(); err != nil {
		n.Fatal(err)
	}
	j := &job{pid: c.Process.Pid, key: usage.SlotKey{Slot: slot, Starter: c.Process.Pid, Started: 1}}
	ended := false
	j.stop = func() {
		if !ended {
			ended = true
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	n.Cleanup(j.stop)
	n.slots[j.pid] = j.key
	return j
}

func (n *node) loads(j *job, percent int) {
	n.Helper()
	n.simgpu("process", "client", strconv.Itoa(j.pid), "0", "1024", strconv.Itoa(percent))
}

// unbook frees a job's share.
func (n *node) unbook(k usage.SlotKey) {
	var left []usage.Reservation
	for _, b := range n.bookings {
		if b.Slot != k {
			left = append(left, b)
		}
	}
	n.bookings = left
}

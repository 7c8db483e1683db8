package usage

import (
	"math"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// TestGuess: a rise is of those that have not worked yet, anything else goes by what each does.
func TestGuess(t *testing.T) {
	for name, c := range map[string]struct {
		guess []float64 // 0 is of a job that has not worked yet
		step  float64
		want  []float64
	}{
		"a rise":                    {[]float64{0, 0.3}, 0.2, []float64{0.2, 0.3}},
		"a rise, two have not":      {[]float64{0, 0, 0.3}, 0.2, []float64{0.1, 0.1, 0.3}},
		"a rise, all have worked":   {[]float64{0.1, 0.3}, 0.2, []float64{0.15, 0.45}},
		"a drop":                    {[]float64{0, 0.3}, -0.2, []float64{0, 0.1}},
		"a drop, all have worked":   {[]float64{0.1, 0.3}, -0.2, []float64{0.05, 0.15}},
		"a drop, of which none did": {[]float64{0, 0}, -0.2, []float64{0, 0}},
	} {
		var jobs []*level
		for _, g := range c.guess {
			jobs = append(jobs, &level{guess: g, high: 2 * g})
		}
		guess(jobs, c.step)
		for i, j := range jobs {
			if math.Abs(j.guess-c.want[i]) > 1e-9 {
				t.Errorf("%s: job %d: %v, want %v", name, i, j.guess, c.want[i])
			}
		}
	}
}

// TestBeforeADrop: what was known is kept for a job that goes later, where no job settles that may have made the drop.
func TestBeforeADrop(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		step      float64
		settle    bool
		want      bool
		low, high float64
	}{
		"a drop": {-0.1, false, true, 0.14, 0.5}, "a rise": {0.1, false, false, 0.25, 0.61},
		"a drop while one settles": {-0.1, true, false, 0.14, 0.5},
	} {
		j := &level{low: 0.25, high: 0.5, guess: 0.3}
		l := levels{jobs: map[SlotKey]*level{slot1: j}}
		fresh := map[*level]bool{}
		if c.settle {
			fresh[j] = true
		}
		l.widen(now, c.step, 0.01, fresh)
		if kept := l.before != nil && l.dropped.Equal(now) && l.before[slot1].guess == 0.3; kept != c.want {
			t.Errorf("%s: before %v at %v", name, l.before, l.dropped)
		}
		if math.Abs(j.low-c.low) > tiny || math.Abs(j.high-c.high) > tiny {
			t.Errorf("%s: it is in %v to %v, want %v to %v", name, j.low, j.high, c.low, c.high)
		}
	}
}

// TestRegressionNeeds: jobs behind MPS are told apart by the driver's own counters, while nobody else is on the device.
func TestRegressionNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*observation, *sharers)
		want   bool
	}{
		"MPS":                 {func(*observation, *sharers) {}, true},
		"time slices":         {func(_ *observation, c *sharers) { c.mps = false }, false},
		"outsiders":           {func(_ *observation, c *sharers) { c.outsiders = true }, false},
		"another source":      {func(o *observation, _ *sharers) { o.source = "" }, false},
		"nobody with a clue":  {func(_ *observation, c *sharers) { c.clients = nil }, false},
		"more than one share": {func(_ *observation, c *sharers) { c.parts[0].Cap = 0.5 }, true},
	} {
		var tr tracker
		now := time.Unix(1e9, 0)
		for range 180 {
			o := observation{activity: gpu.Known(0.3), source: sourceGPM}
			s := sharers{mps: true, known: 1, slots: []SlotKey{slot1}, parts: []Part{{Cap: 1, Weight: 1}}, clients: map[SlotKey]int{slot1: 1}}
			c.change(&o, &s)
			tr.regress(o, s, now)
			now = now.Add(time.Second)
		}
		if r, ok := tr.last.likely[slot1]; ok != c.want || ok && math.Abs(r.Estimate-0.3) > 0.02 {
			t.Errorf("%s: %+v, %t", name, tr.last.likely, ok)
		}
	}
}

// TestSharersOf: who is no job has a part of its own, all of the device at most. A job without a process has no clients.
func TestSharersOf(t *testing.T) {
	for name, c := range map[string]struct {
		owners []Owner
		want   Part
	}{
		"a stranger":           {[]Owner{OwnerNone}, Part{Cap: 1, Weight: 1}},
		"one that has ended":   {[]Owner{OwnerEnded}, Part{Cap: 1}},
		"one each":             {[]Owner{OwnerNone, OwnerEnded}, Part{Cap: 1, Weight: 1}},
		"nobody beside a slot": {nil, Part{}},
	} {
		tr := tracker{sightings: map[process.ID]sighting{{PID: 100}: {owner: OwnerSlot, slot: slot1}}}
		for i, owner := range c.owners {
			tr.sightings[process.ID{PID: 200 + i}] = sighting{owner: owner}
		}
		out := tr.sharersOf([]Reservation{{Slot: slot1, Share: 1, Cap: 1}, {Slot: slot2, Share: 1, Cap: 1}}, gpu.Measured[[]gpu.ProcessSample]{}, false)
		if len(out.clients) != 1 || out.clients[slot1] != 1 || out.known != 2 || out.outsiders != (len(c.owners) > 0) {
			t.Errorf("%s: %+v", name, out)
		}
		if out.outsiders && out.parts[len(out.parts)-1] != c.want {
			t.Errorf("%s: %+v, want %+v", name, out.parts[len(out.parts)-1], c.want)
		}
	}
}

// TestLate: who was there lately may have caused what is measured late: a slot without a process, and who is no job.
func TestLate(t *testing.T) {
	for name, c := range map[string]struct {
		changed   SlotKey
		outsiders bool
		limit     float64
		clients   int
	}{"a slot": {slot1, false, 0.5, 1}, "a stranger": {SlotKey{}, true, 1, 0}} {
		tr, clients := tracker{changed: map[SlotKey]time.Time{c.changed: {}}}, map[SlotKey]int{}
		if outsiders, limit := tr.late(clients, false, 0.5); outsiders != c.outsiders || limit != c.limit || len(clients) != c.clients {
			t.Errorf("%s: outsiders %t, limit %v, %v", name, outsiders, limit, clients)
		}
	}
}

// TestUnknownIsNotUnlisted: a reading without a number accuses no job, and counts for none of the next.
func TestUnknownIsNotUnlisted(t *testing.T) {
	u := unlisted{last: []gpu.Bytes{1, 2}}
	if now, jobs := u.take(reading{}); now.Known || jobs || u.last != nil {
		t.Errorf("%+v, %t", now, jobs)
	}
}

package usage

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFollow: who comes begins anew, and so does a job with another number of processes.
func TestFollow(t *testing.T) {
	begin := time.Unix(1e9, 0)
	var l levels
	l.jobs = map[SlotKey]*level{}
	for _, c := range []struct {
		name          string
		clients       map[SlotKey]int
		changed, gone bool
		since         map[SlotKey]int // seconds after the beginning
	}{
		{"nobody", nil, false, false, map[SlotKey]int{}},
		{"one comes", map[SlotKey]int{slot1: 1}, true, false, map[SlotKey]int{slot1: 1}},
		{"it stays", map[SlotKey]int{slot1: 1}, false, false, map[SlotKey]int{slot1: 1}},
		{"another comes", map[SlotKey]int{slot1: 1, slot2: 2}, true, false, map[SlotKey]int{slot1: 1, slot2: 3}},
		{"one has more", map[SlotKey]int{slot1: 2, slot2: 2}, true, true, map[SlotKey]int{slot1: 4, slot2: 3}},
		{"one goes", map[SlotKey]int{slot2: 2}, true, true, map[SlotKey]int{slot2: 3}},
		{"the other one stays", map[SlotKey]int{slot2: 2}, false, false, map[SlotKey]int{slot2: 3}},
		{"all go", nil, true, true, map[SlotKey]int{}},
	} {
		l.gone = false
		changed := l.follow(begin, c.clients)
		since := map[SlotKey]int{}
		for k, j := range l.jobs {
			since[k] = int(j.since.Sub(time.Unix(1e9, 0)).Seconds())
			if j.clients != c.clients[k] {
				t.Errorf("%s: %s has %d processes", c.name, k.Slot, j.clients)
			}
		}
		if d := cmp.Diff(c.since, since); d != "" || changed != c.changed || l.gone != c.gone {
			t.Errorf("%s: changed %t, gone %t, since (-want +got):\n%s", c.name, changed, l.gone, d)
		}
		begin = begin.Add(time.Second)
	}
}

// TestFollowExplainsADrop: when a job goes soon after a drop, the drop was its own, and the others
// have what they had before.
func TestFollowExplainsADrop(t *testing.T) {
	for _, c := range []struct {
		after           time.Duration
		low, high       float64 // of the job that stays
		wantLow, wantAt float64
	}{
		{settling - 1, 0.1, 0.5, 0.3, 0.35}, {settling, 0.1, 0.5, 0.1, 0.2}, {0, 0.32, 0.5, 0.32, 0.35}, {0, 0.1, 0.25, 0.25, 0.25},
	} {
		dropped := time.Unix(1e9, 0)
		l := levels{dropped: dropped, jobs: map[SlotKey]*level{
			slot1: {low: c.low, high: c.high, guess: 0.2, clients: 1}, slot2: {clients: 1},
		}, before: map[SlotKey]level{slot1: {low: 0.3, high: 0.6, guess: 0.35}, slot2: {low: 0.1}, {Slot: "slot1_3"}: {low: 0.2}}}
		l.follow(dropped.Add(c.after), map[SlotKey]int{slot1: 1})
		if j := l.jobs[slot1]; len(l.jobs) != 1 || j.low != c.wantLow || j.guess != c.wantAt || j.high != c.high {
			t.Errorf("%+v: %+v of %d", c, j, len(l.jobs))
		}
	}
}

// TestBlocks: a block begins anew when somebody comes, and is measured when it is long enough.
func TestBlocks(t *testing.T) {
	var l levels
	at := func(second int, clients map[SlotKey]int) {
		t.Helper()
		l.take(time.Unix(1e9+int64(second), 0), 0.5, clients)
	}
	at(0, map[SlotKey]int{slot1: 1})
	at(5, map[SlotKey]int{slot1: 1})
	at(9, map[SlotKey]int{slot1: 1, slot2: 1})
	if l.known || l.block.samples != 1 || !l.block.begin.Equal(time.Unix(1e9+9, 0)) {
		t.Errorf("after somebody came: %+v", l.block)
	}
	at(18, map[SlotKey]int{slot1: 1, slot2: 1})
	if l.known || l.block.samples != 2 || l.block.sum != 1 || l.block.square != 0.5 {
		t.Errorf("a second too early: known %t, %+v", l.known, l.block)
	}
	at(19, map[SlotKey]int{slot1: 1, slot2: 1})
	if !l.known || l.block != (block{}) || l.settled != 0.5 {
		t.Errorf("after ten seconds: known %t, settled %v, %+v", l.known, l.settled, l.block)
	}
}

// TestMeasureAtTheEdges: a device is saturated above the limit only, and a job settles for a minute.
func TestMeasureAtTheEdges(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		mean  float64
		since time.Duration
		known bool
		sure  bool
	}{
		{saturated, settling, true, false}, {saturated, settling + 1, true, true}, {saturated + 1e-9, settling + 1, false, false},
	} {
		l := levels{jobs: map[SlotKey]*level{slot1: {since: now.Add(-c.since), clients: 1}}}
		l.measure(now, c.mean, noise)
		if j := l.jobs[slot1]; l.known != c.known || j.sure != c.sure {
			t.Errorf("%+v: known %t, sure %t", c, l.known, j.sure)
		}
	}
}

// TestMeasureAStep: a change beyond the error is that of the one job that settles; one within it is chance.
func TestMeasureAStep(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		off, settled, low, high, guess float64
	}{
		{0.125, 0.75, 0.425, 0.775, 0.6}, {0.25, 0.625, 0.3, 0.4, 0.35},
	} {
		j := &level{low: 0.3, high: 0.4, guess: 0.35, since: now, clients: 1}
		l := levels{jobs: map[SlotKey]*level{slot1: j, slot2: {high: 1}}, known: true, settled: 0.5, blocks: 1}
		l.measure(now, 0.75, c.off)
		near := func(a, b float64) bool { return math.Abs(a-b) < tiny }
		if l.settled != c.settled || !near(j.low, c.low) || !near(j.high, c.high) || !near(j.guess, c.guess) {
			t.Errorf("settled %v, %+v; want %+v", l.settled, *j, c)
		}
	}
}

// TestOfUnknownJobs: nothing is said of a job that settles, that is not there, or of a device of which nothing is known.
func TestOfUnknownJobs(t *testing.T) {
	for _, c := range []struct {
		slot              SlotKey
		known, sure, want bool
	}{
		{slot1, true, true, true}, {slot1, false, true, false}, {slot1, true, false, false}, {slot2, true, true, false},
	} {
		l := levels{jobs: map[SlotKey]*level{slot1: {low: 0.2, high: 0.3, sure: c.sure}}, known: c.known}
		bounds := Range{Upper: 1}
		if r, ok := l.of(c.slot, bounds); ok != c.want || !ok && r != bounds {
			t.Errorf("%+v: %+v, %t", c, r, ok)
		}
	}
}

package usage

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// stream is a device with jobs of constant mean activity that come and go, seconds after seconds.
type stream struct {
	r      *rand.Rand
	levels levels
	now    time.Time
	truth  map[SlotKey]float64
	noise  float64
	began  map[SlotKey]time.Time
	next   int
	// narrow, held and all count job-seconds after the first minutes.
	narrow, held, all int
}

func newStream(seed uint64, noise float64) *stream {
	return &stream{r: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1e9, 0), truth: map[SlotKey]float64{}, noise: noise,
		began: map[SlotKey]time.Time{}}
}

func (s *stream) come(level float64) SlotKey {
	s.next++
	k := SlotKey{Slot: "slot1_" + strconv.Itoa(s.next), Starter: s.next}
	s.truth[k], s.began[k] = level, s.now
	return k
}

func byStarter(a, b SlotKey) int { return a.Starter - b.Starter }

// seconds lets time pass.
func (s *stream) seconds(n int) {
	for range n {
		s.now = s.now.Add(time.Second)
		var activity float64
		clients := map[SlotKey]int{}
		for _, k := range slices.SortedFunc(maps.Keys(s.truth), byStarter) { // the same draws each time
			activity += max(s.truth[k]*(1+s.noise*s.r.NormFloat64()), 0)
			clients[k] = 1
		}
		activity = min(activity, 1)
		s.levels.take(s.now, activity, clients)
		for k, u := range s.truth {
			r, _ := s.levels.of(k, Range{Upper: activity})
			s.all++
			if r.Upper-r.Lower < activity/2 {
				s.narrow++
			}
			if r.Lower <= u+0.01 && u <= max(r.Upper, activity)+0.01 && (u <= r.Upper+0.01 || r.Upper == activity) {
				s.held++
			}
		}
	}
}

// Jobs that come one after another are told apart, whatever their activity; when one goes, the
// others stay known; a change in the middle of all widens their intervals by itself.
func TestLevelsByHand(t *testing.T) {
	s := newStream(1, 0)
	a := s.come(0.24)
	s.seconds(120)
	b := s.come(0.20)
	s.seconds(120)
	c := s.come(0.30)
	s.seconds(120)
	look := func(k SlotKey, least, most float64) {
		t.Helper()
		r, ok := s.levels.of(k, Range{Upper: 1})
		if !ok || math.Abs(r.Lower-least) > 0.035 || math.Abs(r.Upper-most) > 0.035 {
			t.Errorf("%s is in %.3f to %.3f (%v), not %.2f to %.2f", k.Slot, r.Lower, r.Upper, ok, least, most)
		}
	}
	look(a, 0.24, 0.24)
	look(b, 0.20, 0.20)
	look(c, 0.30, 0.30)
	delete(s.truth, b)
	s.seconds(60)
	look(a, 0.24, 0.24)
	look(c, 0.30, 0.30)
	s.truth[c] = 0.40 // nobody came: it may be a
	s.seconds(60)
	look(a, 0.24, 0.34)
	look(c, 0.30, 0.40)
	s.truth[c] = 0 // it has ended its work, and goes later
	s.seconds(30)
	look(c, 0, 0.24)
	delete(s.truth, c)
	s.seconds(30)
	look(a, 0.24, 0.24)
}

// A saturated device shows nothing of its jobs, and what was known of them is forgotten.
func TestSaturatedDevice(t *testing.T) {
	s := newStream(1, 0)
	a := s.come(0.5)
	s.seconds(120)
	s.come(0.6)
	s.seconds(120)
	if r, ok := s.levels.of(a, Range{Upper: 1}); ok {
		t.Errorf("%+v of a full device", r)
	}
}

// Over random days of four shares: intervals are narrow and hold.
func TestLevelsHold(t *testing.T) {
	var narrow, held, all int
	for seed := range uint64(20) {
		s := newStream(seed, 0.2)
		var jobs []SlotKey
		for range 60 {
			if len(jobs) == 4 || len(jobs) > 0 && s.r.IntN(3) == 0 {
				i := s.r.IntN(len(jobs))
				delete(s.truth, jobs[i])
				jobs = slices.Delete(jobs, i, i+1)
			} else {
				jobs = append(jobs, s.come(0.22*s.r.Float64()))
			}
			s.seconds(60 + s.r.IntN(1200))
		}
		narrow, held, all = narrow+s.narrow, held+s.held, all+s.all
	}
	t.Logf("of %d job-seconds %.1f %% have an interval narrower than half of the device's activity, and %.1f %% one that holds",
		all, 100*float64(narrow)/float64(all), 100*float64(held)/float64(all))
	if float64(held) < 0.95*float64(all) || float64(narrow) < 0.5*float64(all) {
		t.Error("they do not")
	}
}

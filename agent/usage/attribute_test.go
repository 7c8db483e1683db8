package usage

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// What is not known is not divided as if it were nothing: the interval stays
// open until the activity is known again, and where nothing was ever known of
// the device it is over.
func TestUnknownActivityIsNotDivided(t *testing.T) {
	const longest = 10 * time.Second
	begin := time.Unix(1760000000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	kernel, active := observation{kernel: gpu.Known(0.5)}, observation{activity: gpu.Known(0.5), kernel: gpu.Known(0.5), source: sourceGPM}
	for _, c := range []struct {
		name    string
		steps   []observation
		took    float64 // by the last step
		sampled float64
	}{
		{"activity is known again after two seconds", []observation{active, active, kernel, active}, 2, 3},
		{"kernel time is no substitute", []observation{active, active, kernel}, 0, 1},
		{"nothing was ever known", []observation{{}, {}, kernel}, 1, 1},
		{"nothing is known", []observation{{}, {}}, 0, 0},
	} {
		tr := newTracker()
		var took float64
		var divided bool
		for i, o := range c.steps {
			took, divided = tr.attribute(o, nil, at(i), longest)
		}
		if took != c.took || divided != (c.took > 0) || tr.total.Sampled != c.sampled {
			t.Errorf("%s: took %v, divided %v, sampled %v; want %v and %v", c.name, took, divided, tr.total.Sampled, c.took, c.sampled)
		}
	}
}

// An interval is divided up to the longest one; a longer one is not, and ends.
func TestLongIntervalIsNotDivided(t *testing.T) {
	const longest = 10 * time.Second
	begin := time.Unix(1760000000, 0)
	active := observation{activity: gpu.Known(0.5), kernel: gpu.Known(0.5), source: sourceGPM}
	for _, c := range []struct {
		after   time.Duration
		divided bool
	}{{longest, true}, {longest + time.Nanosecond, false}} {
		tr := newTracker()
		if took, divided := tr.attribute(active, nil, begin, longest); took != 0 || divided {
			t.Errorf("the first sample divides %v, %v", took, divided)
		}
		took, divided := tr.attribute(active, nil, begin.Add(c.after), longest)
		if divided != c.divided || divided != (took > 0) {
			t.Errorf("after %s: took %v, divided %v", c.after, took, divided)
		}
		if rest := tr.total.UnattributedSM; c.divided && rest != gpu.Known(0.5*took) {
			t.Errorf("after %s: %+v is of no slot, want %v", c.after, rest, 0.5*took)
		}
		if took, divided = tr.attribute(active, nil, begin.Add(c.after+time.Second), longest); took != 1 || !divided {
			t.Errorf("a second later: took %v, divided %v", took, divided)
		}
	}
}

// Activity beyond what the parts are thought to have wanted goes to the room
// below their caps, in proportion; where there is none the weights stand.
func TestActivityBeyondTheWeightsFillsTheCaps(t *testing.T) {
	for _, c := range []struct {
		activity float64
		parts    []Part
		want     []float64
	}{
		{0.9, []Part{{Cap: 0.5, Weight: 0.2}, {Cap: 1, Weight: 0.4}}, []float64{0.3, 0.6}},
		{0.5, []Part{{Cap: 0.25, Weight: 0.25}, {Cap: 0.25, Weight: 0.25}}, []float64{0.25, 0.25}},
		{0.6, []Part{{Cap: 0.25, Weight: 0.25}, {Cap: 0.25, Weight: 0.25}}, []float64{0.25, 0.25}},
	} {
		d := Divide(c.activity, c.parts)
		for i, want := range c.want {
			if got := d.Parts[i].Estimate; !(got > want-tiny && got < want+tiny) {
				t.Errorf("%v of %v: part %d has %v, want %v", c.activity, c.parts, i, got, want)
			}
		}
	}
}

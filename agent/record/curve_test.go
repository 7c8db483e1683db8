package record

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCurve(t *testing.T) {
	var c *Curve
	for s, mib := range []int64{100, 400, 400, 200} {
		c = c.With(time.Duration(s)*time.Second, mib)
	}
	if c.Seconds != 1 || !slices.Equal(c.MiB, []int64{100, 400, 400, 200}) {
		t.Fatalf("%+v", c)
	}
	if same := c.With(3500*time.Millisecond, 150); same != c {
		t.Errorf("a smaller sample in the same part made a new curve: %+v", same)
	}
	before := *c
	late := c.With(40*time.Second, 300)
	if late.Seconds != 2 || !slices.Equal(late.MiB[:2], []int64{400, 400}) || late.MiB[20] != 300 || late.MiB[2] != noSample || len(late.MiB) != 21 {
		t.Errorf("%+v", late)
	}
	if c.Seconds != before.Seconds || !slices.Equal(c.MiB, before.MiB) {
		t.Error("the curve before has changed")
	}
}

// However long a job runs its curve has few parts, which keep the largest sample
// and the last; where every second was sampled no part is empty.
func TestCurveKeepsItsPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(0, 80000), 1, 600).Draw(t, "MiB")
		var c *Curve
		for s, mib := range all {
			c = c.With(time.Duration(s)*time.Second, mib)
		}
		last := int(float64(len(all)-1) / c.Seconds)
		if len(c.MiB) != last+1 || len(c.MiB) > CurvePoints || slices.Max(c.MiB) != slices.Max(all) || slices.Contains(c.MiB, noSample) {
			t.Fatalf("%d samples with the peak %d: %+v", len(all), slices.Max(all), c)
		}
		for i, mib := range c.MiB {
			begin := int(float64(i) * c.Seconds)
			if part := all[begin:min(len(all), begin+int(c.Seconds))]; slices.Max(part) != mib {
				t.Fatalf("part %d is %d, its samples are %v", i, mib, part)
			}
		}
	})
}

// TestCurveOfALongJob: parts of a curve that was halved often have the samples of their own
// time, and of no other.
func TestCurveOfALongJob(t *testing.T) {
	var c *Curve
	for s := range 5000 {
		c = c.With(time.Duration(s)*time.Second, int64(s))
	}
	for i, mib := range c.MiB {
		if want := min(4999, int64(float64(i+1)*c.Seconds)-1); mib != want {
			t.Fatalf("part %d of %v s is %d, want %d", i, c.Seconds, mib, want)
		}
	}
}

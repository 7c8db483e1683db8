package sharing

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestByHand holds the cases to numbers worked out by hand: jobs of 100 s, a kernel half of
// the time on half of the multiprocessors and a quarter of the bandwidth.
func TestByHand(t *testing.T) {
	half := Part{Host: 50, Kernel: 50, SMs: 25, Bandwidth: 12.5}
	for name, test := range map[string]struct {
		of      Case
		jobs    int
		slicing bool
		want    float64
	}{
		"alone":                              {Expected, 1, false, 100},
		"two in time slices fit":             {Best, 2, true, 100},
		"four in time slices":                {Best, 4, true, 200},
		"four each waiting for three others": {Worst, 4, true, 250},
		// c = 1 + 3c/(1+c): c = (3+sqrt(13))/2.
		"four in time slices at random":     {Expected, 4, true, 50 + 50*(3+math.Sqrt(13))/2},
		"four with MPS fit the SMs":         {Best, 4, false, 100},
		"eight with MPS fill them twice":    {Best, 8, false, 200},
		"four each waiting at SMs and DRAM": {Worst, 4, false, 50 + 50*(1+3*.75)},
		// c = 1 + 1.5c/(1+c): c = (1.5+sqrt(6.25))/2 = 2.
		"four with MPS at random": {Expected, 4, false, 150},
	} {
		var parts []Part
		for range test.jobs {
			parts = append(parts, half)
		}
		if got := half.Host + test.of.Contention(parts, test.slicing)*half.Kernel; math.Abs(got-test.want) > 1e-6 {
			t.Errorf("%s: %g s, not %g", name, got, test.want)
		}
	}
}

// TestHost: beyond one thread for each core the threads share cores.
func TestHost(t *testing.T) {
	for _, test := range []struct {
		of      Case
		load    float64
		threads int
		want    float64
	}{
		{Worst, 0.5, 2, 1}, {Worst, 0.75, 2, 1.5}, {Worst, 1, 2, 2}, {Best, 1, 2, 1}, {Worst, 1, 1, 1},
		{Expected, 1, 2, 2 / 1.3}, {Expected, 0.75, 2, 1.5 / 1.15},
	} {
		if got := test.of.Host(test.load, test.threads); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%+v: %g", test, got)
		}
	}
}

// TestOrder: for any jobs, nothing is better than Best, and of equal jobs nothing is worse
// than Worst.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := func() Part {
			kernel := rapid.Float64Range(0, 1e5).Draw(t, "kernel")
			return Part{rapid.Float64Range(0.001, 1e5).Draw(t, "host"), kernel,
				kernel * rapid.Float64Range(0, 1).Draw(t, "sm"), kernel * rapid.Float64Range(0, 1).Draw(t, "bandwidth")}
		}
		parts := []Part{part()}
		for range rapid.IntRange(1, 20).Draw(t, "jobs") {
			parts = append(parts, parts[0])
		}
		slicing := rapid.Bool().Draw(t, "slicing")
		best, expected := Best.Contention(parts, slicing), Expected.Contention(parts, slicing)
		worst := Worst.Contention(parts, slicing)
		if best < 1 || expected < best-1e-6 || worst < expected-1e-6 {
			t.Fatalf("best %g, expected %g, worst %g", best, expected, worst)
		}
		parts[0] = part()
		if c := Expected.Contention(parts, slicing); c < 1 || math.IsNaN(c) {
			t.Fatalf("unequal jobs: %g", c)
		}
	})
}

// TestBusy: at the factor that is found the jobs take what there is, or it is 1
// and they take no more.
func TestBusy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []Part
		for range rapid.IntRange(2, 20).Draw(t, "jobs") {
			kernel := rapid.Float64Range(0.001, 1e5).Draw(t, "kernel")
			parts = append(parts, Part{Host: rapid.Float64Range(0, 1e5).Draw(t, "host"), Kernel: kernel,
				SMs: kernel * rapid.Float64Range(0, 1).Draw(t, "sm")})
		}
		c := busy(parts, func(p *Part) float64 { return p.SMs })
		sum := 0.0
		for _, p := range parts {
			sum += p.SMs / (p.Host + c*p.Kernel)
		}
		if c < 1 || sum > 1+1e-6 || c > 1+1e-6 && math.Abs(sum-1) > 1e-6 {
			t.Fatalf("stretch %g: they take %g", c, sum)
		}
	})
}

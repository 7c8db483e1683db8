package advise

import (
	"math"
	"testing"
)

// TestAtMost holds the continued fraction to the sum that it stands for.
func TestAtMost(t *testing.T) {
	for _, n := range []int{1, 2, 7, 59, 300, 2000} {
		for _, p := range []float64{1e-6, .01, .05, .3, .5, .9, .999} {
			sum := 0.0
			for x := 0; x < n; x += max(1, n/50) {
				sum = 0
				for k := 0; k <= x; k++ {
					a, _ := math.Lgamma(float64(n + 1))
					b, _ := math.Lgamma(float64(k + 1))
					c, _ := math.Lgamma(float64(n - k + 1))
					sum += math.Exp(a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
				}
				if got := atMost(x, n, p); math.Abs(got-sum) > 1e-9 {
					t.Fatalf("atMost(%d, %d, %v) = %v, want %v", x, n, p, got, sum)
				}
			}
		}
	}
}

// TestPublishedNumbers: sizes and limits as tables of distribution-free tolerance
// limits and Clopper and Pearson's paper have them.
func TestPublishedNumbers(t *testing.T) {
	for _, c := range []struct {
		risk float64
		n    int
	}{{.05, 59}, {.10, 29}, {.01, 299}} { // Wilks 1941: 95 %/95 % takes 59
		if got := enoughFor(c.risk, .05); got != c.n {
			t.Errorf("a risk of %v takes %d jobs, want %d", c.risk, got, c.n)
		}
		if _, ok := mostOf(c.n-1, c.risk, .05); ok {
			t.Errorf("%d jobs are enough for %v", c.n-1, c.risk)
		}
		if x, ok := mostOf(c.n, c.risk, .05); !ok || x != 0 {
			t.Errorf("%d jobs: %d, %v", c.n, x, ok)
		}
	}
	if x, _ := mostOf(93, .05, .05); x != 1 { // the second largest of 93
		t.Errorf("of 93: %d", x)
	}
	if got := lowerLimit(10, 10, .025); math.Abs(got-.6915) > 1e-4 {
		t.Errorf("10 of 10: at least %v", got)
	}
	if got := lowerLimit(5, 10, .025); math.Abs(got-.1871) > 1e-4 {
		t.Errorf("5 of 10: at least %v", got)
	}
}

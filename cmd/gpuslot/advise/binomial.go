package advise

import "math"

// atMost is the probability of at most x of n jobs, when each is one with
// probability p: the regularised incomplete beta function I(1-p; n-x, x+1).
func atMost(x, n int, p float64) float64 {
	switch {
	case x < 0:
		return 0
	case x >= n || p <= 0:
		return 1
	case p >= 1:
		return 0
	}
	return incompleteBeta(float64(n-x), float64(x+1), 1-p)
}

// incompleteBeta is I(x; a, b) by its continued fraction (Lentz), from the side
// on which that converges soon: DLMF 8.17.22.
func incompleteBeta(a, b, x float64) float64 {
	if x > (a+1)/(a+b+2) {
		return 1 - incompleteBeta(b, a, 1-x)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	const least = 1e-300
	c, d := 1.0, 1-(a+b)*x/(a+1)
	if math.Abs(d) < least {
		d = least
	}
	d = 1 / d
	h := d
	step := func(t float64) float64 {
		d = 1 + t*d
		if math.Abs(d) < least {
			d = least
		}
		c = 1 + t/c
		if math.Abs(c) < least {
			c = least
		}
		d = 1 / d
		h *= d * c
		return d * c
	}
	for m := 1.0; m < 10000; m++ {
		step(m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)))
		if math.Abs(step(-(a+m)*(a+b+m)*x/((a+2*m)*(a+2*m+1)))-1) < 1e-14 {
			break
		}
	}
	return front * h / a
}

// mostOf is how many of n jobs may need more than a request so that, whatever
// their distribution, at most the risk of all jobs does, with the probability
// doubt of being wrong. If more than the risk of all jobs needed more, so few
// in a sample would be that improbable. Not ok: n jobs are too few.
func mostOf(n int, risk, doubt float64) (x int, ok bool) {
	if atMost(0, n, risk) > doubt {
		return 0, false
	}
	low, high := 0, n // atMost(low) is small enough, atMost(high) is not
	for high-low > 1 {
		if middle := (low + high) / 2; atMost(middle, n, risk) <= doubt {
			low = middle
		} else {
			high = middle
		}
	}
	return low, true
}

// enoughFor is the least number of jobs from which mostOf can tell anything.
func enoughFor(risk, doubt float64) int {
	return int(math.Ceil(math.Log(doubt)/math.Log1p(-risk) - 1e-9))
}

// lowerLimit is Clopper and Pearson's of one side, for the part of all jobs of
// which x in n were seen.
func lowerLimit(x, n int, doubt float64) float64 {
	return bisect(func(p float64) bool { return 1-atMost(x-1, n, p) < doubt })
}

// bisect is where a rule stops to hold, between 0 and 1.
func bisect(holds func(float64) bool) float64 {
	low, high := 0.0, 1.0
	for range 60 {
		if middle := (low + high) / 2; holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

package advise

import "math"

// regression finds what a GPU draws when nothing runs on it, from jobs that had
// one to themselves: watts = idle + slope times activity, by least squares.
type regression struct {
	n                int
	x, y, xx, xy, yy float64
	leastWatts       float64
}

func (r *regression) add(activity, watts float64) {
	if r.n == 0 || watts < r.leastWatts {
		r.leastWatts = watts
	}
	r.n++
	r.x, r.y = r.x+activity, r.y+watts
	r.xx, r.xy, r.yy = r.xx+activity*activity, r.xy+activity*watts, r.yy+watts*watts
}

const (
	// regressionJobs are the fewest for a line.
	regressionJobs = 30
	// certain is the standard error of the idle power, as a part of it, up to which
	// the line is taken.
	certain = 0.2
)

// idle is the watts without activity; not ok where the jobs do not tell, such as
// when all are equally busy, or other things than activity decide.
func (r regression) idle() (watts float64, ok bool) {
	n := float64(r.n)
	if r.n < regressionJobs {
		return 0, false
	}
	x, y := r.x/n, r.y/n
	variance := r.xx/n - x*x
	if variance <= 1e-9 {
		return 0, false
	}
	slope := (r.xy/n - x*y) / variance
	watts = y - slope*x
	residual := max(0, r.yy/n-y*y-slope*slope*variance)
	doubt := math.Sqrt(residual / (n - 2) * (1 + x*x/variance))
	if slope < 0 || watts <= 0 || math.IsNaN(doubt) || doubt > certain*watts {
		return 0, false
	}
	return min(watts, r.leastWatts), true
}

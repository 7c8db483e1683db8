package advise

import (
	"hash/fnv"
	"slices"

	"github.com/gpuslot/gpuslot/agent/record"
)

// keptCurves is how many curves of a class are kept. Which ones depends on the
// jobs' ids alone, not on the order in which they come.
const keptCurves = 24

// curve is one job's, at CurvePoints places of its life; -1 is not known.
type curve struct {
	lot uint64
	mib [record.CurvePoints]int64
}

// curves are a sample, ordered by lot, the lowest kept.
type curves []curve

func (cs *curves) add(j record.Job) {
	if j.Curve == nil || len(j.Curve.MiB) == 0 || j.Curve.Seconds <= 0 || j.Seconds() <= 0 {
		return
	}
	lot := identity(j)
	if len(*cs) == keptCurves && lot >= (*cs)[keptCurves-1].lot {
		return
	}
	cs.insert(curve{lot, stretched(*j.Curve, j.Seconds())})
}

func (cs *curves) insert(c curve) {
	at, _ := slices.BinarySearchFunc(*cs, c.lot, func(c curve, lot uint64) int {
		switch {
		case c.lot < lot:
			return -1
		case c.lot > lot:
			return 1
		}
		return 0
	})
	*cs = slices.Insert(*cs, at, c)
	if len(*cs) > keptCurves {
		*cs = (*cs)[:keptCurves]
	}
}

func (cs *curves) merge(o curves) {
	for _, c := range o {
		cs.insert(c)
	}
}

// stretched reads a curve at equal parts of the job's life.
func stretched(c record.Curve, seconds float64) (out [record.CurvePoints]int64) {
	for i := range out {
		at := (float64(i) + 0.5) / record.CurvePoints * seconds
		part := min(at/c.Seconds, float64(len(c.MiB)-1))
		out[i] = max(-1, c.MiB[int(part)])
	}
	return out
}

// Curve is the VRAM of a class over its jobs' life, in MiB at equal parts of it:
// the middle job's, and those that a quarter of the jobs is below and above.
// Jobs is how many it is of.
type Curve struct {
	Jobs   int     `json:"jobs"`
	Low    []int64 `json:"quarter_mib"`
	Middle []int64 `json:"median_mib"`
	High   []int64 `json:"three_quarters_mib"`
}

// typical is nil of fewer than three curves.
func (cs curves) typical() *Curve {
	if len(cs) < 3 {
		return nil
	}
	out := Curve{Jobs: len(cs)}
	for i := range record.CurvePoints {
		var at []int64
		for _, c := range cs {
			if c.mib[i] >= 0 {
				at = append(at, c.mib[i])
			}
		}
		if len(at) == 0 {
			at = []int64{-1}
		}
		slices.Sort(at)
		out.Low = append(out.Low, at[len(at)/4])
		out.Middle = append(out.Middle, at[len(at)/2])
		out.High = append(out.High, at[len(at)*3/4])
	}
	return &out
}

// identity tells a record from every other one; the same record read twice is the
// same.
func identity(j record.Job) uint64 {
	h := fnv.New64a()
	for _, s := range []string{string(j.GPU), j.Schedd, j.Job, j.Slot} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	var b [16]byte
	for i, v := range [2]int64{j.Begin.UnixNano(), j.End.UnixNano()} {
		for k := range 8 {
			b[8*i+k] = byte(v >> (8 * k))
		}
	}
	_, _ = h.Write(b[:])
	// FNV's high bits are poor: mixed, so that the lots are fair.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

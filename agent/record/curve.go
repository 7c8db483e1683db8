package record

import (
	"slices"
	"time"
)

// noSample stands in a Curve for a part that no sample fell into.
const noSample = -1

// With is the curve with one more sample, taken so long after its begin. A curve
// never changes: what adds nothing is the curve itself. A nil curve has no part yet.
func (c *Curve) With(after time.Duration, mib int64) *Curve {
	if c == nil {
		c = &Curve{Seconds: 1}
	}
	out := &Curve{c.Seconds, slices.Clone(c.MiB)}
	at := max(0, after.Seconds())
	for at >= out.Seconds*CurvePoints {
		out.halve()
	}
	part := int(at / out.Seconds)
	if part < len(c.MiB) && out.Seconds == c.Seconds && mib <= c.MiB[part] {
		return c
	}
	for len(out.MiB) <= part {
		out.MiB = append(out.MiB, noSample)
	}
	out.MiB[part] = max(out.MiB[part], mib)
	return out
}

// halve makes one part of two, of twice the length.
func (c *Curve) halve() {
	for i := range (len(c.MiB) + 1) / 2 {
		c.MiB[i] = slices.Max(c.MiB[2*i : min(2*i+2, len(c.MiB))])
	}
	c.MiB = c.MiB[:(len(c.MiB)+1)/2]
	c.Seconds *= 2
}

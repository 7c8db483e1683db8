package simulate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// TestProgress: a log gets lines, and only of runs that take long; a terminal gets one line
// that is drawn over and removed.
func TestProgress(t *testing.T) {
	policies := []Policy{Exclusive(), MPS(0)}
	done := func(p Progress) float64 { return float64(p.Ended) / 100 }
	var out bytes.Buffer
	p := NewReport(&out, policies, done)
	p.Watch(0, Progress{Ended: 10})
	p.End()
	if out.Len() > 0 {
		t.Errorf("a short run says %q", out.String())
	}
	p.every = 0
	p.Watch(1, Progress{Ended: 50, At: 36 * 3600e9})
	if got := out.String(); got != "30 % done; mps: 50 jobs ended, day 1.5\n" {
		t.Errorf("%q", got)
	}
	out.Reset()
	p.Terminal = true
	p.Watch(0, Progress{Ended: 100})
	p.End()
	if got := out.String(); !strings.HasPrefix(got, "\r[#######################") || !strings.Contains(got, " 75 %  exclusive: 100 jobs ended") || strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r"+show.ClearLine) {
		t.Errorf("%q", got)
	}
}

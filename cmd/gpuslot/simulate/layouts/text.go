package layouts

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Print writes the rows as an aligned table. Times are in seconds, utilisation is
// a part of 1; a dash is what is not known. An error of w shows
// at its next use.
func Print(w io.Writer, rows []Row) {
	t := &show.Table{}
	t.Row("POLICY", "MEAN WAIT/s", "P95/s", "STARTED", "SMs", "MEMORY", "CHANGES", "DISTURBED")
	for _, r := range rows {
		wait, p95 := "-", "-"
		if r.Started > 0 {
			wait, p95 = strconv.FormatFloat(r.MeanWait, 'f', 0, 64), strconv.FormatFloat(r.P95Wait, 'f', 0, 64)
		}
		t.Row(r.Policy, wait, p95, fmt.Sprintf("%d of %d", r.Started, r.Jobs), part(r.SMs), part(r.Memory),
			strconv.Itoa(r.Changes), strconv.Itoa(r.Disturbed))
	}
	t.Print(w)
}

func part(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'f', 2, 64)
}

// short is a duration without zero parts: 30m, not 30m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

package simulate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Print writes the rows as an aligned table. Times are in seconds, utilisation is
// a part of 1; a dash is what is not known.
func Print(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POLICY\tMEAN WAIT/s\tP95/s\tSTARTED\tSMs\tMEMORY\tCHANGES\tDISTURBED")
	for _, r := range rows {
		wait, p95 := "-", "-"
		if r.Started > 0 {
			wait, p95 = strconv.FormatFloat(r.MeanWait, 'f', 0, 64), strconv.FormatFloat(r.P95Wait, 'f', 0, 64)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%d\t%d\n", r.Policy, wait, p95, r.Started, r.Jobs, part(r.SMs), part(r.Memory), r.Changes, r.Disturbed)
	}
	return t.Flush()
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

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/record"
)

// fqan is the attribute name of a virtual organisation as a whole.
func fqan(vo string) string { return "/" + strings.TrimPrefix(vo, "/") }

// printEGI prints the fields of the EGI GPU record draft 4 (2021), message type
// APEL-accelerator-message v0.1. What a record does not know is left out. The
// user is the account and the FQAN the virtual organisation: the node knows
// nothing else of them.
func printEGI(w io.Writer, records []record.Job, site string) error {
	var b strings.Builder
	b.WriteString("APEL-accelerator-message: v0.1\n")
	for _, r := range records {
		field := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "%s: %s\n", name, strings.ReplaceAll(value, "\n", " "))
			}
		}
		end := r.End.UTC()
		field("MeasurementMonth", strconv.Itoa(int(end.Month())))
		field("MeasurementYear", strconv.Itoa(end.Year()))
		field("AssociatedRecordType", "job")
		field("AssociatedRecord", r.Job)
		field("GlobalUserName", r.Owner)
		if r.VO != "" {
			field("FQAN", fqan(r.VO))
		}
		field("SiteName", site)
		if r.Share > 0 {
			field("Count", strconv.FormatFloat(r.Share, 'f', 4, 64))
		}
		field("AvailableDuration", strconv.Itoa(int(r.End.Sub(r.Begin).Seconds())))
		if r.SM.Estimate != nil && r.Share > 0 {
			field("ActiveDuration", strconv.Itoa(int(*r.SM.Estimate/r.Share)))
		}
		field("Type", "GPU")
		field("Model", r.Model)
		b.WriteString("%%\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

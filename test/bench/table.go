package main

import (
	"errors"
	"fmt"
	"io"
)

// row is one line of the table.
type row struct {
	what, got, target string
	met               bool
}

// table prints rows as they come, in columns of a fixed width, and counts.
type table struct {
	to     io.Writer
	begun  bool
	missed int
	errs   []error
}

func newTable(to io.Writer) *table { return &table{to: to} }

func (t *table) line(what, got, target, verdict string) {
	fmt.Fprintf(t.to, "%-58s  %-42s  %-22s  %s\n", what, got, target, verdict)
}

func (t *table) print(rows ...row) {
	if !t.begun && len(rows) > 0 {
		t.begun = true
		t.line("WHAT", "MEASURED", "TARGET", "")
	}
	for _, r := range rows {
		verdict := "met"
		switch {
		case r.target == "":
			verdict = "no aim" // a yardstick, or nothing is promised
		case !r.met:
			verdict = "MISSED"
			t.missed++
		}
		t.line(r.what, r.got, r.target, verdict)
	}
}

// left notes a part that was not measured, or not to its end.
func (t *table) left(part string, why error) {
	fmt.Fprintf(t.to, "%s: not measured: %v\n", part, why)
	t.errs = append(t.errs, fmt.Errorf("%s was not measured: %w", part, why))
}

// verdict is an error where a target was missed or a part was not measured.
func (t *table) verdict() error {
	if t.missed > 0 {
		return errors.Join(append(t.errs, fmt.Errorf("%d targets missed", t.missed))...)
	}
	return errors.Join(t.errs...)
}

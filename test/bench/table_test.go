package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestTable: a row is there as soon as it is printed, and what missed its target or was not
// measured is an error at the end.
func TestTable(t *testing.T) {
	var out strings.Builder
	table := newTable(&out)
	table.print(row{"a yardstick", "2 ms", "", false}, row{"start", "3 ms", "<= 5 ms", true})
	if !strings.Contains(out.String(), "3 ms") || !strings.HasSuffix(strings.TrimSpace(out.String()), " met") {
		t.Errorf("after two rows:\n%s", out.String())
	}
	if !strings.Contains(out.String(), "no aim") {
		t.Errorf("a row without an aim looks as if it were met:\n%s", out.String())
	}
	if err := table.verdict(); err != nil {
		t.Error(err)
	}
	table.print(row{"memory", "90 MiB", "<= 60 MiB", false})
	if err := table.verdict(); err == nil || err.Error() != "1 targets missed" {
		t.Error(err)
	}
	table.left("held", context.DeadlineExceeded)
	if err := table.verdict(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 targets missed") {
		t.Error(err)
	}
}

// TestChosen: what is slow runs by its name or with "all" only.
func TestChosen(t *testing.T) {
	names := func(args ...string) (names []string) {
		for _, p := range chosen((&bench{}).parts(), args) {
			names = append(names, p.name)
		}
		return names
	}
	if got := names(); !slices.Contains(got, "start") || !slices.Contains(got, "throughput") || slices.Contains(got, "simulate") ||
		got[0] != "sizes" || slices.Contains(got, "layouts") {
		t.Error(got)
	}
	if got := names("simulate", "plan"); len(got) != 6 || got[0] != "plan" {
		t.Error(got)
	}
	if got := names("all"); !slices.Contains(got, "throughput") || !slices.Contains(got, "start") {
		t.Error(got)
	}
}

package docs

import (
	"os"
	"strings"
	"testing"
)

// TestEnforcements: one table says of each enforcement what can break it, how fast that is
// noticed and what happens then, in no empty cell.
func TestEnforcements(t *testing.T) {
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| enforcement | what can break it | noticed | what happens then |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("operations.md has no such table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]int{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Errorf("%d cells in %q", len(cells), line)
		}
		for _, c := range cells {
			if strings.TrimSpace(c) == "" {
				t.Errorf("an empty cell in %q", line)
			}
		}
		name, _, _ := strings.Cut(strings.TrimSpace(cells[0]), ":")
		rows[name]++
	}
	for _, wall := range []string{"`cgroup`", "`daemon`", "`watch`", "`none`", "compute mode `exclusive-process`", "pipe directory", "one tenant at a time (`tenancy`)", "device rule"} {
		if rows[wall] == 0 {
			t.Errorf("no row for %s in %v", wall, rows)
		}
	}
	if strings.Contains(string(page), "default limit, which only root can change") {
		t.Error("a limit that jobs can escape is called one that only root can change")
	}
}

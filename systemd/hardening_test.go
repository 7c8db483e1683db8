package systemd_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// hardened is a unit, the column that it has in docs/hardening.md, and the name
// of a file that systemd-analyze takes for it.
var hardened = map[string]struct {
	column int
	file   string
}{
	"gpuslotd.service":     {2, "gpuslotd.service"},
	"gpuslot-mps@.service": {3, "gpuslot-mps@i.service"},
}

// TestHardening holds units and docs/hardening.md to each other, by this
// machine's systemd; TestNode does so by the newest.
func TestHardening(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: TestNode asks the node's")
	}
	dir := t.TempDir()
	for unit, h := range hardened {
		text, err := os.ReadFile("units/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.file)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		analyze := func(args ...string) string {
			cmd := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"security", "--offline=true", "--no-pager"}, append(args, path)...)...)
			out, err := cmd.Output()
			if err != nil {
				t.Skipf("systemd-analyze of this machine does not read files: %v", err)
			}
			return string(out)
		}
		checkHardening(t, unit, analyze("--json=short"), analyze(), true)
	}
}

var overall = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// checkHardening compares what systemd-analyze says with the papers. Versions
// differ in their lines and weights: only the one that the papers are from is
// held to every line.
func checkHardening(t *testing.T, unit, lines, report string, exact bool) {
	t.Helper()
	paper := read(t, "../docs/hardening.md")
	var all []struct {
		Set      *bool
		Name     string
		Exposure *string
	}
	if err := json.Unmarshal([]byte(lines), &all); err != nil {
		t.Fatal(err)
	}
	excused := excuses(t, paper, hardened[unit].column)
	for _, l := range all {
		open := l.Exposure != nil && (l.Set == nil || !*l.Set)
		if open && !excused[l.Name] {
			t.Errorf("%s: %s is open, and docs/hardening.md does not say why", unit, l.Name)
		}
		if !open && excused[l.Name] && exact {
			t.Errorf("%s: %s is shut, and docs/hardening.md excuses it", unit, l.Name)
		}
	}
	said := regexp.MustCompile(regexp.QuoteMeta(unit) + ` ([0-9.]+)`).FindStringSubmatch(paper)
	got := overall.FindStringSubmatch(report)
	if said == nil || got == nil {
		t.Fatalf("%s: no figure in docs/hardening.md (%v) or in the report:\n%s", unit, said, report)
	}
	limit, errL := strconv.ParseFloat(said[1], 64)
	score, errS := strconv.ParseFloat(got[1], 64)
	if errL != nil || errS != nil || score > limit || exact && score < limit {
		t.Errorf("%s: exposure %v, docs/hardening.md says %v", unit, got[1], said[1])
	}
}

// excuses are the lines that a column of the table has open.
func excuses(t *testing.T, paper string, column int) map[string]bool {
	t.Helper()
	open := map[string]bool{}
	for line := range strings.Lines(paper) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) < 6 || strings.TrimSpace(cells[column]) != "open" {
			continue
		}
		name := strings.ReplaceAll(strings.Trim(cells[1], " `"), "\x00", "|")
		open[name] = true
	}
	if len(open) < 10 {
		t.Fatalf("read only %d lines of the table in docs/hardening.md", len(open))
	}
	return open
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

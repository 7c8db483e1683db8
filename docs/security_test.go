package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestSecurityPage holds the modes and bounds of security.md to what sets them.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	if size := fmt.Sprintf("(%d KiB)", api.MaxRequest>>10); !strings.Contains(string(page), size) {
		t.Errorf("security.md does not say that a request may have %s", size)
	}
	for _, c := range []struct{ page, file, set string }{
		{"| `/run/gpuslot/agent.sock` | 0666 |", "../systemd/units/gpuslotd.socket", "\nSocketMode=0666\n"},
		{"| `/run/gpuslot/mps/<uuid>/` | 0750 root", "../systemd/units/gpuslot-mps-dir@.service", "\nRuntimeDirectoryMode=0750\n"},
		{"(`NoNewPrivileges`)", "../systemd/units/gpuslotd.service", "\nNoNewPrivileges=yes\n"},
		{"a read-only file system but for its own directories and `/tmp`", "../systemd/units/gpuslotd.service", "\nReadWritePaths=/tmp\n"},
		{"no network", "../systemd/units/gpuslot-mps@.service", "\nIPAddressDeny=any\n"},
		{"| `metrics.listen` | 127.0.0.1:9847 |", "../etc/gpuslot.toml", "\n#listen = \"127.0.0.1:9847\"\n"},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), c.page) {
			t.Errorf("security.md does not say %q", c.page)
		}
		if !strings.Contains(string(text), c.set) {
			t.Errorf("security.md says %q, but %s does not have %q", c.page, c.file, c.set)
		}
	}
}

// TestAttempts: each row of security.md on what a job may try names tests that are there,
// or is marked open.
func TestAttempts(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| a job … | what becomes of it | test |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) < 20 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(row, "|")
		named := strings.TrimSpace(cells[len(cells)-2])
		if named == "open" {
			continue
		}
		for name := range strings.SplitSeq(named, "; ") {
			dir, test, _ := strings.Cut(strings.Trim(name, "`"), " ")
			function, part, _ := strings.Cut(test, "/")
			if !inTests(t, dir, "func "+function+"(t *testing.T)") || part != "" && !inTests(t, dir, `"`+part) {
				t.Errorf("%s: there is no test %s", cells[1], name)
			}
		}
	}
}

// inTests reports whether a package's tests have a text.
func inTests(t *testing.T, dir, text string) bool {
	t.Helper()
	files, err := filepath.Glob("../" + dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), text) {
			return true
		}
	}
	return false
}

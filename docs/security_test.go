package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
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
	if listen := "| `metrics.listen` | " + config.Default().Metrics.Listen + " |"; !strings.Contains(string(page), listen) {
		t.Errorf("security.md does not say %q", listen)
	}
	for _, c := range []struct{ page, unit, key, value string }{
		{"| `/run/gpuslot/agent.sock` | 0666 |", "gpuslotd.socket", "SocketMode", "0666"},
		{"| `/run/gpuslot/mps/<uuid>/` | 0750 root", "gpuslot-mps-dir@.service", "RuntimeDirectoryMode", "0750"},
		{"(`NoNewPrivileges`)", "gpuslotd.service", "NoNewPrivileges", "yes"},
		{"a read-only file system but for its own directories and `/tmp`", "gpuslotd.service", "ProtectSystem", "strict"},
		{"its own directories and `/tmp`", "gpuslotd.service", "ReadWritePaths", "/tmp"},
		{"no network", "gpuslot-mps@.service", "IPAddressDeny", "any"},
	} {
		if !strings.Contains(string(page), c.page) {
			t.Errorf("security.md does not say %q", c.page)
		}
		if values := settings(t, c.unit)[c.key]; !slices.Contains(values, c.value) {
			t.Errorf("security.md says %q, but %s has %s=%q", c.page, c.unit, c.key, values)
		}
	}
}

// settings are the words of each setting of a unit (systemd.syntax(7)).
func settings(t *testing.T, unit string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../systemd/units/" + unit)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok && line[0] != '#' {
			words[key] = append(words[key], strings.Fields(value)...)
		}
	}
	return words
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
	type tests struct{ functions, texts []string }
	known := map[string]tests{}
	for _, row := range rows {
		cells := strings.Split(row, "|")
		named := strings.TrimSpace(cells[len(cells)-2])
		if named == "open" {
			continue
		}
		for name := range strings.SplitSeq(named, "; ") {
			dir, test, _ := strings.Cut(strings.Trim(name, "`"), " ")
			function, part, _ := strings.Cut(test, "/")
			its, is := known[dir]
			if !is {
				its.functions, its.texts = testsOf(t, dir)
				known[dir] = its
			}
			begins := func(text string) bool { return strings.HasPrefix(text, part) }
			if !slices.Contains(its.functions, function) || part != "" && !slices.ContainsFunc(its.texts, begins) {
				t.Errorf("%s: there is no test %s", cells[1], name)
			}
		}
	}
}

// testsOf are the tests of a package, and the texts in its test files: names of parts are there.
func testsOf(t *testing.T, dir string) (functions, texts []string) {
	t.Helper()
	files, err := filepath.Glob("../" + dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				functions = append(functions, f.Name.Name)
			}
		}
		texts = append(texts, textsOf(t, file, "")...)
	}
	return functions, texts
}

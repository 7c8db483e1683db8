// Package docs holds the project's papers; its tests hold them to the code.
package docs

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpuslot/gpuslot/"

// TestImportTable holds every package to the row it has in architecture.md.
func TestImportTable(t *testing.T) {
	table := importTable(t)
	for path, imports := range packages(t) {
		name := strings.TrimPrefix(path, module)
		if strings.HasPrefix(name, "test/") || name == "docs" {
			continue
		}
		allowed, ok := table[name]
		if !ok {
			t.Errorf("package %s has no row in architecture.md", name)
			continue
		}
		for _, imp := range imports {
			if own, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s, which its row in architecture.md does not allow", name, own)
			}
			if strings.HasPrefix(imp, "github.com/NVIDIA/go-nvml") && name != "gpu/nvml" {
				t.Errorf("%s imports %s: cgo lives in gpu/nvml alone", name, imp)
			}
		}
	}
}

// TestImportTableHasNoGhosts finds rows whose package is gone.
func TestImportTableHasNoGhosts(t *testing.T) {
	have := packages(t)
	for name := range importTable(t) {
		if _, ok := have[module+name]; !ok {
			t.Errorf("architecture.md has a row for %s, which does not exist", name)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

func importTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok1 := strings.Cut(string(text), "<!-- imports -->")
	body, _, ok2 := strings.Cut(after, "<!-- /imports -->")
	if !ok1 || !ok2 {
		t.Fatal("architecture.md has lost the markers of its import table")
	}
	table := map[string][]string{}
	for row := range strings.Lines(body) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		var allowed []string
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			allowed = append(allowed, m[1])
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			table[m[1]] = allowed
		}
	}
	if len(table) < 10 {
		t.Fatalf("read only %d rows of the import table", len(table))
	}
	return table
}

func packages(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[p.ImportPath] = p.Imports
	}
}

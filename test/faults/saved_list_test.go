package faults

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written are files that the agent makes and never reads: it writes them again at each start.
// The logs of agent/history lose a line that was cut off, and no other (agent/store TestLog).
var written = map[string]int{
	"agent/startd":  3, // HTCondor's configuration, its inventory, and that of a closed node
	"agent/daemons": 1, // flags of control daemons
	"agent/dcgm":    1, // jobs for dcgm-exporter's labels
	"agent/history": 2, // the logs of records and of events
	"mig":           1, // the book of a GPU's instances: read when they change (mig TestBook, test/mig)
}

// TestEachSavedFileIsDamaged compares what TestSavedFiles damages with the program: whoever
// saves another file adds it there.
func TestEachSavedFileIsDamaged(t *testing.T) {
	want := maps.Clone(written)
	c := &campaign{startd: &startd{node: &node{}}}
	for _, f := range slices.Concat(savedFiles(c), limitFiles(c)) {
		want[f.by]++
	}
	got := map[string]int{}
	for _, root := range []string{"agent", "mig", "mps", "condor", "systemd", "gpu"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel("../..", filepath.Dir(path))
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				name == "agent/store" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				if n := writes(file); n > 0 {
					got[name] += n
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s writes %d files, and %d are in the lists", name, got[name], want[name])
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("these packages write files that no list has: %v", got)
	}
}

// writes counts the places where a source file puts a file in place or makes a log.
func writes(file *ast.File) (n int) {
	ast.Inspect(file, func(at ast.Node) bool {
		s, ok := at.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := s.X.(*ast.Ident)
		if !ok {
			return true
		}
		switch of.Name + "." + s.Sel.Name {
		case "store.Write", "store.WriteJSON", "store.WriteIfChanged", "os.WriteFile", "os.Rename":
			n++
		}
		return true
	})
	// A log is made by a literal of its type, which other expressions name as well.
	ast.Inspect(file, func(at ast.Node) bool {
		if l, ok := at.(*ast.CompositeLit); ok {
			if s, ok := l.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Log" {
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "store" {
					n++
				}
			}
		}
		return true
	})
	return n
}

// TestWrites: what counts as a place that writes.
func TestWrites(t *testing.T) {
	for text, want := range map[string]int{
		`return store.WriteJSON(path, v)`:                  1,
		`store.Write(path, b); os.Rename(a, b)`:            2,
		`return store.Log{Dir: "d"}`:                       1,
		`var l store.Log; _ = l; store.Remove(p); _ = l`:   0,
		`_, _ = store.Store[int]{Path: "p"}.Read()`:        0,
		`_, _ = store.WriteIfChanged(p, b); f.WriteFile()`: 1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package p\nfunc f() { "+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := writes(file); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPurePackages: what the Makefile tests without the race detector starts no
// goroutine and has nothing that several could share.
func TestPurePackages(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(strings.ReplaceAll(string(makefile), "\\\n", " "), "\nPURE := ")
	list, _, found := strings.Cut(list, "\n")
	if !found {
		t.Fatal("the Makefile has no PURE")
	}
	for _, dir := range strings.Fields(list) {
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Errorf("%s of PURE has no Go files (%v)", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if why := shares(t, file, nil); why != "" {
				t.Errorf("%s: %s: take %s out of PURE in the Makefile", file, why, dir)
			}
		}
	}
	for source, want := range map[string]string{
		"package p\nfunc f() { go f() }":                             "it starts a goroutine",
		"package p\nimport \"sync\"\nvar w sync.WaitGroup":           "it uses sync.WaitGroup",
		"package p\nimport \"sync\"\nvar f = sync.OnceValue(g)":      "",
		"package p\nimport \"sync/atomic\"\nvar n atomic.Int64":      "it imports sync/atomic",
		"package p\nimport \"os/exec\"\nfunc f() { exec.Command() }": "",
	} {
		if got := shares(t, "p.go", source); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}

// shares says what a file has that the race detector is for; empty for nothing.
func shares(t *testing.T, name string, source any) (why string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range file.Imports {
		if path := strings.Trim(i.Path.Value, `"`); path == "sync/atomic" || path == "golang.org/x/sync/errgroup" {
			why = "it imports " + path
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			why = "it starts a goroutine"
		case *ast.SelectorExpr: // what is made once, and not changed, may be shared
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "sync" && !strings.HasPrefix(n.Sel.Name, "OnceValue") {
				why = "it uses sync." + n.Sel.Name
			}
		}
		return true
	})
	return why
}

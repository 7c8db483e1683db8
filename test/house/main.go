// Command house prints how large the program is and how it is cut: the numbers by
// which a stranger judges whether it can be changed. With -check it compares them with limits.
// It reads the sources alone.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// roots are the folders of the program itself.
var roots = []string{"cmd", "agent", "condor", "gpu", "mig", "mps", "systemd"}

// mostColumns is how long a line may be.
const mostColumns = 120

// pkg is one package of the program.
type pkg struct {
	path         string
	files, lines int
	tests        int
	// long are the lines above mostColumns, as file:line.
	long []string
	// methods counts those of each type; interfaces those that are declared.
	methods, interfaces map[string]int
}

func main() {
	checked := flag.Bool("check", false, "compare with the limits instead of printing the numbers")
	flag.Parse()
	packages, err := read(".")
	if err == nil && *checked {
		for _, text := range exceptions.check(packages) {
			err = errors.Join(err, errors.New(text))
		}
	} else if err == nil {
		err = print(os.Stdout, packages)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// read reads the packages of the program in a repository.
func read(repository string) ([]*pkg, error) {
	packages := map[string]*pkg{}
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(repository, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			dir, err := filepath.Rel(repository, filepath.Dir(path))
			if err != nil {
				return err
			}
			if packages[dir] == nil {
				packages[dir] = &pkg{path: dir, methods: map[string]int{}, interfaces: map[string]int{}}
			}
			return packages[dir].read(path)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(packages) == 0 {
		return nil, errors.New("no sources here: run it in the repository's root (make house)")
	}
	return slices.Collect(maps.Values(packages)), nil
}

// read adds a file to a package.
func (p *pkg) read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Count(string(text), "\n")
	if strings.HasSuffix(path, "_test.go") {
		p.tests += lines
		return nil
	}
	p.files++
	p.lines += lines
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	other := otherText(files, f)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if !other[n] && utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > mostColumns {
			p.long = append(p.long, fmt.Sprintf("%s:%d", path, n))
		}
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
			p.methods[receiver(fn.Recv.List[0].Type)]++
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				p.interfaces[spec.Name.Name] = i.Methods.NumFields()
			}
		}
		return true
	})
	return nil
}

// otherText are the lines of raw strings that have several: scripts and generated text, which are
// not Go.
func otherText(files *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, "\n") {
			for i := files.Position(l.Pos()).Line; i <= files.Position(l.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

func print(out *os.File, packages []*pkg) error {
	var lines, tests, long, wide int
	methods, name := 0, ""
	for _, p := range packages {
		lines, tests, long = lines+p.lines, tests+p.tests, long+len(p.long)
		for typ, n := range p.methods {
			if n > methods || n == methods && p.path+"."+typ < name {
				methods, name = n, p.path+"."+typ
			}
		}
		for _, n := range p.interfaces {
			if n > mostInterface {
				wide++
			}
		}
	}
	slices.SortFunc(packages, func(a, b *pkg) int { return cmp.Or(b.lines-a.lines, strings.Compare(a.path, b.path)) })
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tNOW\tAIM")
	fmt.Fprintf(w, "Go lines outside tests under %s\t%d\tat most 48000\n", strings.Join(roots, " "), lines)
	fmt.Fprintf(w, "tests beside them, lines for each line\t%.2f\tat least 0.8\n", float64(tests)/float64(max(lines, 1)))
	fmt.Fprintf(w, "largest package, lines\t%d (%s)\t2500\n", packages[0].lines, packages[0].path)
	fmt.Fprintf(w, "methods of the largest type\t%d (%s)\t25\n", methods, name)
	fmt.Fprintf(w, "interfaces above 3 methods\t%d\t0\n", wide)
	fmt.Fprintf(w, "lines above %d columns\t%d\t0\n", mostColumns, long)
	fmt.Fprintln(w, "\nPACKAGE\tFILES\tLINES")
	for _, p := range packages[:min(15, len(packages))] {
		fmt.Fprintf(w, "%s\t%d\t%d\n", p.path, p.files, p.lines)
	}
	return w.Flush()
}

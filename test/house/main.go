// Command house prints how large the program is and how it is cut: the numbers by
// which a stranger judges whether it can be changed. With -check it compares them with limits,
// and reads the sources alone. With -touch FILE it changes that file for a moment, and prints how
// long the tests of its package then take.
package main

import (
	"bytes"
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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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
	touched := flag.String("touch", "", "print how long the tests of this file's package take after a change of it")
	flag.Parse()
	packages, err := read(".")
	if *touched != "" {
		err = touch(*touched)
	} else if err == nil && *checked {
		for _, text := range exceptions.check(packages) {
			err = errors.Join(err, errors.New(text))
		}
	} else if err == nil {
		var sizes map[string]int
		if sizes, err = circles(".", roots); err == nil {
			err = print(os.Stdout, packages, sizes)
		}
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

// touch adds a line to a file, runs the tests of its package once without it and once with it, and
// prints how long the second run took: one compilation of what the change reaches, and the tests.
func touch(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	test := func() (time.Duration, error) {
		start := time.Now()
		cmd := exec.Command("go", "test", "-count=1", "./"+filepath.Dir(file))
		cmd.Stderr = os.Stderr
		err := cmd.Run()
		return time.Since(start), err
	}
	if _, err := test(); err != nil {
		return err
	}
	const unused = "\nconst touchedByHouse = 1\n"
	if err := os.WriteFile(file, append(bytes.Clone(text), unused...), 0o600); err != nil {
		return err
	}
	took, err := test()
	if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		return err
	}
	fmt.Printf("after a change of %s the tests of its package took %s (aim 3 s)\n", file, took.Round(100*time.Millisecond))
	return nil
}

// print prints the numbers. Sizes are those of the packages' largest circles of files.
func print(out *os.File, packages []*pkg, sizes map[string]int) error {
	circular := ""
	for _, path := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[path] > sizes[circular] {
			circular = path
		}
	}
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
	fmt.Fprintf(w, "files that all need each other, at most in a package\t%d (%s)\t15\n", sizes[circular], circular)
	fmt.Fprintf(w, "files from the socket to a job's environment\t%d\tat most 7\n", visited(admission))
	fmt.Fprintf(w, "interfaces above 3 methods\t%d\t0\n", wide)
	fmt.Fprintf(w, "lines above %d columns\t%d\t0\n", mostColumns, long)
	fmt.Fprintln(w, "\nPACKAGE\tFILES\tLINES\tLARGEST CIRCLE OF FILES")
	for _, p := range packages[:min(15, len(packages))] {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", p.path, p.files, p.lines, sizes[p.path])
	}
	return w.Flush()
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
}

// circles counts, for each package below the folders, the files of its largest circle: files of
// which each needs all others, by the names that they use of each other.
func circles(repository string, folders []string) (map[string]int, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles"}
	for _, f := range folders {
		args = append(args, "./"+f+"/...")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = repository, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports, own := map[string]string{}, []listed{}
	root, err := filepath.Abs(repository)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.Dir, root+string(filepath.Separator)) {
			own = append(own, p)
		}
	}
	sizes := map[string]int{}
	for _, p := range own {
		n, err := circle(p, exports)
		if err != nil {
			return nil, err
		}
		sizes[strings.TrimPrefix(p.Dir, root+string(filepath.Separator))] = n
	}
	return sizes, nil
}

// circle is the size of a package's largest circle of files.
func circle(p listed, exports map[string]string) (int, error) {
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return 0, err
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	c := types.Config{FakeImportC: true, Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	pkg, err := c.Check(p.ImportPath, fset, files, info)
	if err != nil {
		return 0, err
	}
	needs := map[string]map[string]bool{}
	for id, o := range info.Uses {
		if o.Pkg() != pkg || !o.Pos().IsValid() {
			continue
		}
		from, to := fset.File(id.Pos()).Name(), fset.File(o.Pos()).Name()
		if needs[from] == nil {
			needs[from] = map[string]bool{}
		}
		needs[from][to] = true
	}
	return largest(needs), nil
}

// largest is the size of the largest set of nodes that all reach each other, at least 1.
func largest(needs map[string]map[string]bool) int {
	reach := map[string]map[string]bool{}
	for from := range needs {
		seen := map[string]bool{}
		for todo := []string{from}; len(todo) > 0; {
			next := todo[0]
			todo = todo[1:]
			for to := range needs[next] {
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
		reach[from] = seen
	}
	most := 1
	for from, seen := range reach {
		n := 1
		for to := range seen {
			if to != from && reach[to][from] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

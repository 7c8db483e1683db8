package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
)

// step is a function on the way of a job's admission, and the name in it that leads on.
type step struct{ file, function, leads string }

// admission is the way of a job that is granted, from the socket to its environment. A test holds
// it to the code. The checks on the way have files of their own.
var admission = []step{
	{"agent/server/server.go", "reply", "Answer"},
	{"agent/answers.go", "handlers", "Prepare"},
	{"agent/admission/admission.go", "Prepare", "admit"},
	{"agent/admission/admit.go", "admit", "Admit"},
	{"agent/jobs/table.go", "Admit", "decide"},
	{"agent/admission/admit.go", "decide", "Decide"},
	{"agent/admission/decide.go", "Decide", "grantShared"},
	{"agent/admission/grant.go", "grantShared", "Environment"},
}

// visited is how many files a way has.
func visited(way []step) int {
	files := map[string]bool{}
	for _, s := range way {
		files[s.file] = true
	}
	return len(files)
}

// follows says whether a step's function is there and has the name that leads on.
func (s step) follows(repository string) (bool, error) {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, s.file), nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	found := false
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != s.function {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && id.Name == s.leads
			return true
		})
	}
	return found, nil
}

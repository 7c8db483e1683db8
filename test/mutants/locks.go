package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// lockRemoved is the change that takes a lock out of a function: every Lock and every
// Unlock of it there. Its tests run with the race detector. One of the two alone is no
// change worth a try: it stops the first test that comes by.
const lockRemoved = "lock removed"

// locks adds a site for each lock that a function takes and gives back itself.
func (f *finder) locks(body *ast.BlockStmt) {
	var names []string
	taken, given := map[string][]ast.Node{}, map[string][]ast.Node{}
	ast.Inspect(body, func(n ast.Node) bool {
		lock, method := f.lockCall(n)
		switch method {
		case "Lock", "RLock":
			if !slices.Contains(names, lock) {
				names = append(names, lock)
			}
			taken[lock] = append(taken[lock], n)
		case "Unlock", "RUnlock":
			given[lock] = append(given[lock], n)
		}
		return method == ""
	})
	for _, lock := range names {
		if len(given[lock]) > 0 {
			f.without(append(taken[lock], given[lock]...))
		}
	}
}

// lockCall is the lock of a statement and the method that it calls on it; "" for others.
func (f *finder) lockCall(n ast.Node) (lock, method string) {
	var call *ast.CallExpr
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, _ = n.X.(*ast.CallExpr)
	case *ast.DeferStmt:
		call = n.Call
	}
	if call == nil || len(call.Args) > 0 {
		return "", ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Lock", "RLock", "Unlock", "RUnlock"}, sel.Sel.Name) {
		return "", ""
	}
	return f.text(sel.X.Pos(), sel.X.End()), sel.Sel.Name
}

// without adds the change that leaves out these statements and nothing between them.
func (f *finder) without(statements []ast.Node) {
	slices.SortFunc(statements, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	first, last := statements[0], statements[len(statements)-1]
	var rest strings.Builder
	for i, s := range statements[1:] {
		rest.WriteString(f.text(statements[i].End(), s.Pos()))
	}
	f.add(first.Pos(), last.End(), lockRemoved, rest.String())
}

func (f *finder) text(begin, end token.Pos) string {
	return string(f.source[f.tokens.Offset(begin):f.tokens.Offset(end)])
}

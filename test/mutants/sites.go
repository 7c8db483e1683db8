package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// site is one place of a source file and the text that takes its place.
type site struct {
	// file is relative to the repository's root, function is the one around the place.
	file, function string
	// line is its number, source its text without what surrounds it.
	line   int
	source string
	// change says what becomes of it, nth counts the same changes of one line from 1 on.
	change     string
	nth        int
	begin, end int
	text       string
}

// key names the change without its line's number, which moves as the file grows.
func (s site) key() string {
	return strings.Join([]string{s.file, s.function, s.source, s.change + nthWord(s.nth)}, " | ")
}

func nthWord(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d)", n)
}

func (s site) where() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// apply is the file with the change.
func (s site) apply(source []byte) []byte {
	return slices.Concat(source[:s.begin], []byte(s.text), source[s.end:])
}

// swapped are operators and what takes their place. What does not compile, such as a
// difference of texts, is found when it is built.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.INC: token.DEC, token.DEC: token.INC, token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK,
}

// finder collects the sites of one file.
type finder struct {
	file   string
	source []byte
	lines  [][]byte
	tokens *token.File
	within string
	found  []site
}

// sitesOf finds everything that may be changed in a file below root.
func sitesOf(root, file string) ([]site, error) {
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{file: file, source: source, lines: bytes.Split(source, []byte("\n")), tokens: fset.File(parsed.FileStart)}
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.within = fn.Name.Name
			f.locks(fn.Body)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	slices.SortStableFunc(f.found, func(a, b site) int { return cmp.Compare(a.begin, b.begin) })
	seen := map[string]int{}
	for i := range f.found {
		s := &f.found[i]
		s.nth = 1
		k := s.key()
		seen[k]++
		s.nth = seen[k]
	}
	return f.found, nil
}

func (f *finder) add(begin, end token.Pos, change, text string) {
	line := f.tokens.Line(begin)
	f.found = append(f.found, site{file: f.file, function: f.within, line: line,
		source: string(bytes.TrimSpace(f.lines[line-1])), change: change,
		begin: f.tokens.Offset(begin), end: f.tokens.Offset(end), text: text})
}

// swap adds the site of an operator or keyword.
func (f *finder) swap(at token.Pos, t token.Token) {
	if other, ok := swapped[t]; ok {
		f.add(at, at+token.Pos(len(t.String())), t.String()+" to "+other.String(), other.String())
	}
}

func (f *finder) visit(n ast.Node) bool {
	if _, method := f.lockCall(n); method != "" {
		return false
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.swap(n.OpPos, n.Op)
	case *ast.IncDecStmt:
		f.swap(n.TokPos, n.Tok)
	case *ast.BranchStmt:
		if n.Label == nil {
			f.swap(n.TokPos, n.Tok)
		}
	case *ast.IfStmt:
		f.add(n.Cond.Pos(), n.Cond.End(), "condition negated", "!("+f.text(n.Cond.Pos(), n.Cond.End())+")")
	case *ast.CallExpr:
		// Bases and sizes of numbers: most changes of them change nothing.
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok && isPackage(sel.X, "strconv") {
			return false
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !logs(call) {
			f.add(n.Pos(), n.End(), "call removed", "")
		}
	case *ast.DeferStmt:
		f.add(n.Pos(), n.End(), "defer removed", "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && !blank(n.Lhs) {
			f.add(n.Pos(), n.End(), "assignment removed", "")
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			return true
		}
		// What stands beside an error or a false is read by no caller.
		switch last := n.Results[len(n.Results)-1]; {
		case isError(last):
			f.add(last.Pos(), last.End(), "error dropped", "nil")
			return false
		case isFalse(last):
			f.visit(last)
			return false
		}
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			other := strconv.FormatBool(n.Name == "false")
			f.add(n.Pos(), n.End(), n.Name+" to "+other, other)
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 10, 32); n.Kind == token.INT && err == nil {
			f.add(n.Pos(), n.End(), fmt.Sprintf("%d to %d", v, v+1), strconv.FormatInt(v+1, 10))
		}
	}
	return true
}

// logs says that a call only writes a line of log, which tests need not read.
func logs(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log"}, sel.Sel.Name)
}

// blank says that an assignment only throws a value away.
func blank(to []ast.Expr) bool {
	return !slices.ContainsFunc(to, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return !ok || id.Name != "_"
	})
}

// isError says that an expression is an error by the look of it.
func isError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasPrefix(e.Name, "err")
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		return ok && (sel.Sel.Name == "Errorf" || sel.Sel.Name == "New") && isPackage(sel.X, "fmt", "errors")
	}
	return false
}

func isFalse(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "false"
}

func isPackage(e ast.Expr, names ...string) bool {
	id, ok := e.(*ast.Ident)
	return ok && slices.Contains(names, id.Name)
}

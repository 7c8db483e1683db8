package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEnglishOfPrograms holds what programs say to the rules of the pages: help, errors,
// logs, reasons and the help of metrics are the string literals of their code.
func TestEnglishOfPrograms(t *testing.T) {
	texts := 0
	for _, dir := range []string{"cmd", "agent", "condor", "gpu", "mig", "mps", "systemd"} {
		err := filepath.WalkDir("../"+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			for at, text := range literals(file) {
				if len(words(text)) < 4 {
					continue
				}
				texts++
				checkText(t, files.Position(at).String(), text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 1000 {
		t.Errorf("%d texts in the programs", texts)
	}
}

// literals are the texts of a file, each joined from its parts. Code of other languages,
// which has tabs, is none.
func literals(file *ast.File) map[token.Pos]string {
	all := map[token.Pos]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			if text, ok := joinedText(e); ok {
				all[e.Pos()] = text
				return false
			}
		case *ast.BasicLit:
			if text, ok := joinedText(e); ok {
				all[e.Pos()] = text
			}
		}
		return true
	})
	return all
}

// joinedText is a text that is written as "one" + "another".
func joinedText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := joinedText(e.X)
		right, ok2 := joinedText(e.Y)
		return left + right, ok && ok2 && e.Op == token.ADD
	}
	return "", false
}

// column is a gap in a line of help: such a line is a row of a table.
var column = regexp.MustCompile(`(?m)^(.*\S)  +(\S.*)$`)

// example is a line of a command, in help.
var example = regexp.MustCompile(`(?m)^  \S.*$`)

// chain is where a message goes on with a reason, or with what to do.
var chain = regexp.MustCompile(`([\pL\pN)%"])[:;] `)

// checkText reports long sentences and unused words.
func checkText(t *testing.T, where, text string) {
	t.Helper()
	if strings.Contains(text, "\n") {
		text = column.ReplaceAllString(text, "\n$1\n\n$2\n")
		text = example.ReplaceAllString(text, "")
	} else { // a chain of reasons, and what to do
		text = chain.ReplaceAllString(text, "$1.\n")
	}
	for _, s := range sentences(text) {
		if n := len(words(s.text)); n > longest {
			t.Errorf("%s: %d words: %s", where, n, s.text)
		}
	}
	for _, u := range unusedIn(where, text) {
		t.Errorf("%s: %s", where, u)
	}
}

// TestEnglishOfDashboards does so for the dashboards' titles and descriptions.
func TestEnglishOfDashboards(t *testing.T) {
	files, err := filepath.Glob("../etc/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	said := regexp.MustCompile(`"(?:title|description)": ("(?:[^"\\]|\\.)*")`)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range said.FindAllStringSubmatch(string(text), -1) {
			plain, err := strconv.Unquote(m[1])
			if err != nil {
				t.Fatal(err)
			}
			checkText(t, path, plain)
		}
	}
}

// said are the texts of files that are not Go: where they are, and what matches one. Texts of C stand in quotes, side by side
// or one below the other. A script's messages follow the command that prints them.
var said = []struct{ files, pattern string }{
	{"../cmd/gpuslot-start/*.[ch]", `(/\*(?s:.*?)\*/)|'(?:[^'\\]|\\.)+'|((?:"(?:[^"\\\n]|\\.)*"\s*)+)`},
	{"../etc/packaging/*.sh", message}, {"../etc/packaging/scripts/*.sh", message},
	{"../etc/packaging/gpuslot.yaml", `(?m)^description: *\|\n((?:  .*\n)+)`},
	{"../systemd/units/*.service", describes}, {"../systemd/units/*.socket", describes}, {"../systemd/units/*/*.conf", describes},
	{"../Makefile", `(?m)^[a-z-]+:.*## (.*)$`}, {"../Makefile", message},
}

const (
	message   = `(?m)\b(?:echo|printf|say|die|fail) ("(?:[^"\\\n]|\\.)*"|'[^'\n]*')`
	describes = `(?m)^Description=(.*)$`
)

// TestEnglishOfOtherTexts does so for what C programs, scripts of the packages, units and the Makefile print.
func TestEnglishOfOtherTexts(t *testing.T) {
	texts := map[string]int{}
	for _, where := range said {
		files, err := filepath.Glob(where.files)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", where.files, len(files), err)
		}
		for _, path := range files {
			for _, text := range saidIn(read(t, path), where.pattern) {
				texts[filepath.Ext(path)]++
				checkText(t, path, text)
			}
		}
	}
	for ending, least := range map[string]int{".c": 50, ".sh": 20, ".service": 3, ".yaml": 1, "": 20} {
		if texts[ending] < least {
			t.Errorf("%d texts in files that end with %q, want %d", texts[ending], ending, least)
		}
	}
}

// saidIn are the texts of a file that a pattern finds, without quotes and comment marks.
func saidIn(file, pattern string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(file, -1) {
		text := regexp.MustCompile(`"\s*"`).ReplaceAllString(strings.TrimSpace(strings.Join(m[1:], "")), "")
		text = strings.NewReplacer(`\n`, " ", `\"`, "", "/*", "", "*/", "").Replace(strings.Trim(text, `"'`))
		if text = strings.Join(strings.Fields(text), " "); len(words(text)) >= 4 {
			all = append(all, text)
		}
	}
	return all
}

// TestSaidIn: which texts of C and of a script are found.
func TestSaidIn(t *testing.T) {
	c := "char quote = '\"';\nputs(\"one two \"\n\t\"three four\\n\");\nputs(\"few words\");\n/* five \"six\"\n   seven eight */\nint x;\n"
	script := "echo \"nine ten eleven twelve\" >&2\nx=\"not printed but long enough\"\n"
	if got := saidIn(c, said[0].pattern); !slices.Equal(got, []string{"one two three four", `five "six" seven eight`}) {
		t.Errorf("of C: %q", got)
	}
	if got := saidIn(script, message); !slices.Equal(got, []string{"nine ten eleven twelve"}) {
		t.Errorf("of a script: %q", got)
	}
}

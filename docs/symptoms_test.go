package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reproduced names, for each row of runbook.md's table of closed GPUs, a
// function of a test that brings a daemon, a server, a GPU or a node there, and
// the text that it looks for.
var reproduced = map[string]struct{ file, test, sees string }{
	"its control daemon: it is not running":                           {"mps/matrix_test.go", "kill", "it is not running"},
	"its control daemon: … is suspended":                              {"mps/set_test.go", "TestOneTroubleDoesNotHinderOthers", "is suspended"},
	"its control daemon: … did not answer":                            {"mps/matrix_test.go", "wedge", "did not answer"},
	"its memory-limit reads":                                          {"mps/matrix_test.go", "foreignLimits", "its memory-limit reads"},
	"its MPS server … is in FAULT":                                    {"agent/daemons/servers_test.go", "TestServerState", "is in FAULT"},
	"its MPS server met N fatal GPU errors":                           {"agent/daemons/servers_test.go", "TestServerFlaps", "fatal GPU errors"},
	"its MPS server … is not ready":                                   {"agent/daemons/servers_test.go", "TestServerState", "is not ready"},
	"Xid N":                                                           {"agent/faults/faults_test.go", "TestStories", "Xid 79"},
	"closed by `owner` since":                                         {"agent/closures_test.go", "TestClosuresOutliveAgents", "closed by node-health since"},
	"the inventory cannot be read: … driver/library version mismatch": {"test/scenes/quiesce.go", "mismatched", "driver/library version mismatch"},
	"it is not in the node any more":                                  {"agent/gone_test.go", "TestGPUGone", "it is not in the node any more"},
	"the memory of its jobs has not been read for":                    {"agent/sampling/watch_test.go", "TestUnseen", "has not been read for"},
	"N hooks in a row were denied":                                    {"agent/admission/slotless_test.go", "TestStartersWithoutASlot", "3 hooks in a row were denied"},
	"N MiB of its VRAM are in use that NVML lists with no process": {"agent/unlisted_sim_test.go", "unlistedLife",
		"MiB of its VRAM are in use that NVML lists with no process"},
	"process N of uid U … is still a client": {"agent/stranger_test.go", "TestStranger", "is still a client"},
}

// variable is what differs from reason to reason: a process, a number, an owner, a setting.
var variable = regexp.MustCompile("…|\\b[NU]\\b|`owner`|memory-limit")

// TestSymptomsAreReproduced: each row of the table of closed GPUs has the words of
// the program, and a function of a test that looks for them.
func TestSymptomsAreReproduced(t *testing.T) {
	page, err := os.ReadFile("runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| the reason begins |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if !ok || len(rows) < 12 {
		t.Fatalf("%d rows", len(rows))
	}
	said := programTexts(t)
	for _, row := range rows[2:] {
		reason := strings.TrimSpace(strings.Split(row, "|")[1])
		for part := range strings.SplitSeq(strings.ReplaceAll(variable.ReplaceAllString(reason, "\n"), "its control daemon: ", "its control daemon: \n"), "\n") {
			if part = strings.TrimSpace(part); !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, part) }) {
				t.Errorf("runbook.md has the reason %q, and no text of the program has %q", reason, part)
			}
		}
		by, ok := reproduced[reason]
		if !ok {
			t.Errorf("no test reproduces %q", reason)
			continue
		}
		within := regexp.MustCompile(variable.ReplaceAllString(regexp.QuoteMeta(reason), ".*"))
		if !strings.Contains(reason, by.sees) && !within.MatchString(by.sees) {
			t.Errorf("%q: %s looks for %q, which is no part of it", reason, by.test, by.sees)
		}
		if !slices.ContainsFunc(textsOf(t, "../"+by.file, by.test), func(s string) bool { return strings.Contains(s, by.sees) }) {
			t.Errorf("%q: %s in %s does not look for %q", reason, by.test, by.file, by.sees)
		}
	}
	if len(reproduced) != len(rows)-2 {
		t.Errorf("%d rows, %d tests", len(rows)-2, len(reproduced))
	}
}

// programTexts are the texts in the program's sources.
func programTexts(t *testing.T) (texts []string) {
	t.Helper()
	for _, dir := range []string{"agent", "mps", "gpu"} {
		err := filepath.WalkDir("../"+dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				texts = append(texts, textsOf(t, path, "")...)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// textsOf are the texts in a function of a file, or in all of the file.
func textsOf(t *testing.T, path, function string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); function != "" && (!ok || f.Name.Name != function) {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					texts = append(texts, text)
				}
			}
			return true
		})
	}
	return texts
}

// TestAlertsAreReproduced: each alert of runbook.md is one that fires in the
// rules' own tests.
func TestAlertsAreReproduced(t *testing.T) {
	page, err := os.ReadFile("runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../etc/prometheus/gpuslot.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)^### (Gpuslot\w+)$`).FindAllStringSubmatch(string(page), -1)
	if len(alerts) < 20 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, m := range alerts {
		if !regexp.MustCompile(`alertname: ` + m[1] + `\n\s+exp_alerts:\n\s+- `).Match(rules) {
			t.Errorf("no test of the rules lets %s fire", m[1])
		}
	}
}

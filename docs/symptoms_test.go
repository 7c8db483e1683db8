package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// reproduced names, for each row of operations.md's table of closed GPUs, a test
// that brings the node there and sees the reason.
var reproduced = map[string]struct{ file, test string }{
	"its control daemon: it is not running":                           {"agent/health_test.go", "TestDaemonFaults"},
	"its control daemon: … suspended":                                 {"agent/health_test.go", "TestDaemonFaults"},
	"its control daemon: it does not answer":                          {"agent/health_test.go", "TestWedgedDaemon"},
	"its memory-limit reads":                                          {"agent/mend_test.go", "TestForeignChange"},
	"its MPS server … is in FAULT":                                    {"test/scenes/trust.go", "serverFault"},
	"its MPS server met N fatal GPU errors":                           {"agent/fault_test.go", "TestServerFlaps"},
	"its MPS server … is INITIALIZING":                                {"agent/fault_test.go", "TestServerState"},
	"Xid N":                                                           {"agent/trouble_test.go", "TestTroubleStories"},
	"closed by `owner` since":                                         {"agent/hold_test.go", "TestHoldsOutliveAgents"},
	"the inventory cannot be read: … driver/library version mismatch": {"test/scenes/quiesce.go", "quiesce"},
	"it is not in the node any more":                                  {"agent/gone_test.go", "TestGPUGone"},
}

// TestSymptomsAreReproduced: no row of the table of closed GPUs without a test.
func TestSymptomsAreReproduced(t *testing.T) {
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| the reason begins |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if !ok || len(rows) < 12 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows[2:] {
		reason := strings.TrimSpace(strings.Split(row, "|")[1])
		by, ok := reproduced[reason]
		if !ok {
			t.Errorf("no test reproduces %q", reason)
			continue
		}
		text, err := os.ReadFile("../" + by.file)
		if err != nil || !regexp.MustCompile(`(?m)^func (\(\w+ \*\w+\) )?`+by.test+`\w*\(`).Match(text) {
			t.Errorf("%q: no %s in %s, %v", reason, by.test, by.file, err)
		}
	}
	if len(reproduced) != len(rows)-2 {
		t.Errorf("%d rows, %d tests", len(rows)-2, len(reproduced))
	}
}

// TestAlertsAreReproduced: each alert of operations.md is one that fires in the
// rules' own tests.
func TestAlertsAreReproduced(t *testing.T) {
	page, err := os.ReadFile("operations.md")
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

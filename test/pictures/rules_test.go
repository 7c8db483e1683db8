package pictures

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile = "../../etc/prometheus/gpuslot.rules.yml"
	rulesTest = "../../etc/prometheus/gpuslot.rules.test.yml"
)

// rule is a recording or an alerting rule.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	readYAML(t, rulesFile, &file)
	var out []rule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// TestRules: promtool accepts the rules and their tests pass.
func TestRules(t *testing.T) {
	promtool := Promtool(t)
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", rulesTest}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestRulesAreTested: every alert is seen to fire and to be silent, every
// recording rule to have a value.
func TestRulesAreTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name string `yaml:"alertname"`
				Want []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
			Values []struct {
				Expr string
				Want []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	readYAML(t, rulesTest, &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Want) > 0
			silent[a.Name] = silent[a.Name] || len(a.Want) == 0
		}
		for _, v := range test.Values {
			fires[v.Expr], silent[v.Expr] = len(v.Want) > 0, true
		}
	}
	for _, r := range readRules(t) {
		if name := r.Alert + r.Record; !fires[name] || !silent[name] {
			t.Errorf("%s: seen to fire or to have a value: %v, to be silent: %v", name, fires[name], silent[name])
		}
	}
}

// TestRunbooks: every alert links to a section of docs/runbook.md, says how
// grave it is and what is wrong.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		sections[anchor(m[1])] = true
	}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		page, section, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(page, "/docs/runbook.md") || !sections[section] || section != anchor(r.Alert) {
			t.Errorf("%s links to %q, and there is no such section", r.Alert, r.Annotations["runbook_url"])
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || !strings.HasSuffix(r.Annotations["summary"], ".") {
			t.Errorf("%s: labels %v, summary %q", r.Alert, r.Labels, r.Annotations["summary"])
		}
	}
}

// anchor is how GitHub names a heading.
func anchor(heading string) string {
	kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}

var metricName = regexp.MustCompile(`\b(?:[a-z]+:)?gpuslot_[a-z_]+(?::[a-z0-9_]+)?\b`)

// documented are the metrics of docs/metrics.md and the recording rules.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(gpuslot_[a-z_]+)(?:\\{[a-z_,]*\\})?` \\| (gauge|counter|histogram)").FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = true
		if m[2] == "histogram" {
			out[m[1]+"_bucket"] = true
		}
	}
	for _, r := range readRules(t) {
		if r.Record != "" {
			out[r.Record] = true
		}
	}
	return out
}

// unknownMetrics are the metrics of an expression that do not exist.
func unknownMetrics(expr string, known map[string]bool) []string {
	out := map[string]bool{}
	for _, name := range metricName.FindAllString(expr, -1) {
		if !known[name] {
			out[name] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

func TestRulesNameMetrics(t *testing.T) {
	known := documented(t)
	for _, r := range readRules(t) {
		if bad := unknownMetrics(r.Expr, known); len(bad) > 0 {
			t.Errorf("%s%s asks for %v, which docs/metrics.md does not have", r.Alert, r.Record, bad)
		}
	}
	if bad := unknownMetrics("rate(gpuslot_nothing_total[5m])", known); len(bad) != 1 {
		t.Error("an unknown metric is not noticed")
	}
}

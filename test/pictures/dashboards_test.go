package pictures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/poll"
)

// dashboard is what matters of Grafana's JSON.
type dashboard struct {
	UID, Title string
	Templating struct{ List []variable }
	Panels     []panel
}

type variable struct {
	Name, Type string
	Query      json.RawMessage
	AllValue   string
}

type panel struct {
	ID          int
	Type, Title string
	Targets     []struct {
		RefID, Expr  string
		Instant      bool
		LegendFormat string
	}
	GridPos struct{ X, Y, W, H int }
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../etc/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards: ", err)
	}
	out := map[string]dashboard{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		var d dashboard
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[filepath.Base(f)] = d
	}
	return out
}

// TestDashboards: metrics and variables that exist, panels that do not overlap,
// no id twice.
func TestDashboards(t *testing.T) {
	known := documented(t)
	uids := map[string]string{}
	for file, d := range dashboards(t) {
		if other := uids[d.UID]; d.UID == "" || other != "" {
			t.Errorf("%s and %s have the uid %q", file, other, d.UID)
		}
		uids[d.UID] = file
		variables := map[string]bool{"__rate_interval": true, "__range": true}
		for _, v := range d.Templating.List {
			variables[v.Name] = true
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: the id %d is there twice", file, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %s lies on %s, or outside", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			for _, q := range p.Targets {
				if bad := unknownMetrics(q.Expr, known); len(bad) > 0 {
					t.Errorf("%s, %s asks for %v, which docs/metrics.md does not have", file, p.Title, bad)
				}
				for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(q.Expr, -1) {
					if !variables[m[1]] {
						t.Errorf("%s, %s: no variable %s", file, p.Title, m[1])
					}
				}
			}
		}
	}
}

// TestDashboardsShow runs every query of every panel in a Prometheus that
// scraped a gpuslotd with jobs: each has a value, and each variable.
func TestDashboardsShow(t *testing.T) {
	program := filepath.Join(Fetch(t, "prometheus"), "usr/bin/prometheus")
	n := newNode(t)
	n.simgpu("xid", "0", "31")
	p := n.prometheus(program)
	p.await(t, "ten scrapes", `count_over_time(gpuslot_build_info[5m]) > 10`)
	n.job(hopper, 4000, "cms", "sleep 600s") // was given something and uses nothing
	p.await(t, "the idle job", `rate(gpuslot_slot_allocated_seconds_total{slot=~".*_5"}[10m]) > 0`)
	p.await(t, "its admission", `rate(gpuslot_admission_duration_seconds_count[10m]) > 0`)
	p.await(t, "recording rules", `count_over_time(vo:gpuslot_energy_joules:rate5m[5m]) > 2`)
	p.await(t, "SM time of slots on the GPU that tells its activity", `gpuslot_slot_sm_seconds_total > 0`)
	p.await(t, "SM time of MIG devices", `gpuslot_mig_sm_seconds_total`)
	p.await(t, "a breach", `gpuslot_job_breaches_total`)
	for file, d := range dashboards(t) {
		// As long as the test may take: what happened once is still in it.
		values := map[string]string{"__rate_interval": "10m", "__range": "10m"}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				values[v.Name] = p.resolve(t, v, values)
			}
		}
		for _, panel := range d.Panels {
			for _, q := range panel.Targets {
				p.await(t, fmt.Sprintf("%s, %s, query %s", file, panel.Title, q.RefID), expand(q.Expr, values))
			}
		}
	}
	for _, r := range readRules(t) {
		if _, err := p.query(r.Expr); err != nil {
			t.Errorf("%s%s: %v", r.Alert, r.Record, err)
		}
	}
}

func expand(expr string, values map[string]string) string {
	return regexp.MustCompile(`\$(\{\w+\}|\w+)`).ReplaceAllStringFunc(expr, func(s string) string {
		return values[strings.Trim(s, "${}")]
	})
}

// server is a Prometheus.
type server struct{ url string }

// prometheus scrapes the node and evaluates the rules each second.
func (n *node) prometheus(program string) server {
	n.Helper()
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		n.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n  - job_name: gpuslot\n    static_configs: [{targets: [%q]}]\n", n.metrics)
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": strings.ReplaceAll(string(rules), "interval: 1m", "interval: 1s")} {
		if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
			n.Fatal(err)
		}
	}
	listen := freePort(n.T)
	log, err := os.Create(n.path("prometheus.log"))
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+n.path("prometheus.yml"), "--storage.tsdb.path="+n.path("tsdb"), "--web.listen-address="+listen)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
	})
	return server{"http://" + listen}
}

func get(address string) (string, error) {
	client := http.Client{Timeout: time.Minute}
	r, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return string(text), err
}

// query is how many samples an expression has now; those that are no number do
// not count.
func (s server) query(expr string) (samples int, err error) {
	text, err := get(s.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	var r struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return 0, fmt.Errorf("%w in %s", err, text)
	}
	if r.Error != "" {
		return 0, errors.New(r.Error)
	}
	for _, v := range r.Data.Result {
		text, _ := v.Value[1].(string)
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			samples++
		}
	}
	return samples, nil
}

func (s server) await(t *testing.T, what, expr string) {
	t.Helper()
	var samples int
	var err error
	if !poll.Until(patience, 200*time.Millisecond, func() bool {
		samples, err = s.query(expr)
		return samples > 0
	}) {
		text, _ := get(s.url + "/api/v1/query?query=" + url.QueryEscape(`{__name__=~"gpuslot_.*"}`))
		t.Fatalf("waited %s for: %s: %s (%v); Prometheus has:\n%s", patience, what, expr, err, text)
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// resolve asks for a variable's values as Grafana does and returns a regular
// expression of all of them.
func (s server) resolve(t *testing.T, v variable, values map[string]string) string {
	t.Helper()
	var q struct{ Query string }
	if err := json.Unmarshal(v.Query, &q); err != nil {
		t.Fatalf("variable %s: %v", v.Name, err)
	}
	m := labelValues.FindStringSubmatch(q.Query)
	if m == nil {
		t.Fatalf("variable %s: %q is no label_values", v.Name, q.Query)
	}
	text, err := get(s.url + "/api/v1/label/" + m[2] + "/values?match[]=" + url.QueryEscape(expand(m[1], values)))
	var r struct{ Data []string }
	if err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	if err != nil || len(r.Data) == 0 {
		t.Errorf("variable %s has no values: %v, %s", v.Name, err, text)
	}
	if v.AllValue != "" {
		return v.AllValue
	}
	return strings.Join(r.Data, "|")
}

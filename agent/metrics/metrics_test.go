package metrics

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	shared = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")
	closed = gpu.UUID("GPU-00000000-0000-4000-8000-000000000001")
	whole  = gpu.UUID("GPU-00000000-0000-4000-8000-000000000002")
	absent = gpu.UUID("GPU-00000000-0000-4000-8000-000000000003")
)

// moment is a snapshot with the use of GPUs and slots as a test writes it.
type moment struct {
	status.Snapshot
	Usage Usage
}

func full() moment {
	v100 := func(u gpu.UUID, index int) status.GPU {
		return status.GPU{GPU: &plan.GPU{
			UUID: u, Index: index, Name: "Tesla V100S-PCIE-32GB", PCI: gpu.PCIBusID("0000:3b:00." + string(rune('0'+index))),
			Mode: config.ModeMPS, Memory: 32768, Shares: 7, Pool: 32256,
		}}
	}
	a, b := v100(shared, 0), v100(closed, 1)
	a.Budgeted, a.Jobs = 12288, []status.Job{{Enforced: "daemon"}, {Enforced: "watch"}}
	a.Daemon = daemons.State{Restarts: 1, Checked: mps.Checked{
		PID: 7, At: time.Unix(1760000000, 500e6), ThreadPercentage: "25.0",
		States: []mps.Server{{Status: mps.Active, ThreadPercentage: "25.0", Clients: []int{11, 12, 13}}},
	}}
	a.Seen = gpu.Known(true)
	a.Verified = &api.Verification{OK: true, At: time.Unix(1760000003, 0)}
	b.Reason, b.Closures = "closed", closures.List{{Owner: "agent"}, {Owner: "operator"}}
	yes, no := mps.Answer{Known: true, Has: true}, mps.Answer{Known: true}
	m := moment{Usage: fullUsage()}
	m.GPUs = []status.GPU{a, b, {GPU: &plan.GPU{
		UUID: whole, Index: 2, Name: "Tesla V100S-PCIE-32GB", PCI: "0000:5e:00.0", Mode: config.ModeWhole, Memory: 32768,
	}}}
	m.Node = status.Node{
		Plan:    plan.Plan{Absent: []gpu.UUID{absent}, Driver: "550.163.01", CUDA: "12.4"},
		Planned: true, Applied: time.Unix(1760000002, 0),
		ConfigRead: time.Unix(1760000001, 0), ConfigOK: true,
		Rounds: 12, RoundOK: true, RoundTook: 250 * time.Millisecond,
		LaidOut: map[gpu.UUID]bool{sliced: true, closed: false},
		Can:     capability.Set{Tried: true, MPS: mps.Capabilities{ServerStatus: yes, MultiUser: no}},
		Repartition: []api.StatusRepartition{
			{
				Setting: "auto", Told: time.Unix(1760000004, 0), Reserved: []string{"a", "b", "c"},
				Demand:   []api.StatusDemand{{Profile: "3g.20gb", Jobs: 2}, {Profile: "1g.5gb", Jobs: 40}},
				Unserved: []api.StatusUnserved{{Jobs: 5}},
			},
			{Setting: "suggest", Act: "suggest"},
		},
	}
	m.FeedbackAsked, m.FeedbackOK, m.FeedbackAt = true, true, time.Unix(1760000005, 0)
	m.SilentKnown = true
	m.Startds = &startd.Said{At: time.Unix(1760000000, 0), Changes: []api.Change{{Need: api.NeedRestart}}}
	m.Faults = []faults.Counted{
		{GPU: shared, Reason: "xid-31", Class: "application", Count: 3}, {GPU: shared, Reason: "xid-79", Class: "broken"},
	}
	return m
}

func newTest(s moment) *Metrics {
	if s.Startds == nil {
		s.Startds = &startd.Said{}
	}
	m := build(Build{Version: "1.2.3", Revision: "abc", GoVersion: "go1.26"}, func() (*status.Snapshot, *Usage) {
		return &s.Snapshot, &s.Usage
	})
	m.Admission("granted", "none", 80*time.Microsecond)
	m.Admission("requeued", "closed", 2*time.Millisecond)
	m.Mismatch()
	m.Breach(shared, api.CodeOverBudget, "hold")
	m.ServerDied(shared)
	m.ServerFault(shared)
	m.ForeignChange(shared, "memory-limit")
	m.DeviceRule("in-time")
	m.CgroupLimited(shared, false)
	m.CgroupLimited(shared, false)
	m.CgroupLimited(shared, true)
	m.ReservationRepaired(shared)
	m.ConversationPanicked("prepare")
	m.RequestRefused()
	m.LayoutFollowed(shared)
	return m
}

// scrape is what Prometheus sees, without the process's own metrics.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	h, err := m.Handler(Web{Ready: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var out strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if !strings.Contains(line, "process_") && !strings.Contains(line, "promhttp_") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestScrape(t *testing.T) {
	golden(t, "full.prom", scrape(t, newTest(full())))
}

// TestUnknownIsAbsent: before the first round nothing is claimed.
func TestUnknownIsAbsent(t *testing.T) {
	got := scrape(t, New(Build{Version: "1.2.3"}, func() *status.Snapshot {
		return &status.Snapshot{Startds: &startd.Said{}, Usage: &usage.Snapshot{}}
	}))
	for _, name := range []string{"gpuslot_config_last", "gpuslot_apply_last", "gpuslot_plan", "gpuslot_gpu", "gpuslot_startd", "gpuslot_control", "gpuslot_driver", "gpuslot_mig", "gpuslot_mps_clients", "gpuslot_mps_default", "gpuslot_condor"} {
		if strings.Contains(got, name) {
			t.Errorf("%s is claimed:\n%s", name, got)
		}
	}
	s := full()
	s.SilentKnown, s.Startds = false, nil
	if strings.Contains(scrape(t, newTest(s)), "older_layout") {
		t.Error("an unknown layout is claimed")
	}
	s.FeedbackOK, s.FeedbackAt = false, time.Time{}
	if got := scrape(t, newTest(s)); !strings.Contains(got, "gpuslot_condor_feedback_success 0\n") || strings.Contains(got, "gpuslot_condor_feedback_timestamp") {
		t.Errorf("no hand-over has worked:\n%s", got)
	}
	if got := series(scrape(t, newTest(full()))); got["gpuslot_mps_clients"] != 1 || got["gpuslot_mps_default_thread_ratio"] != 1 {
		t.Error("a control daemon that told nothing has clients or a limit")
	}
	if strings.Contains(scrape(t, newTest(full())), `control_daemon_proof_timestamp_seconds{gpu="`+string(closed)) {
		t.Error("a proof that never was has a time")
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(newTest(full()).Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var documented = regexp.MustCompile("(?m)^\\| `(gpuslot_[a-z_]+)(?:\\{([a-z_,]*)\\})?` \\| (gauge|counter|histogram) \\|")

// TestDocumentation holds docs/metrics.md to the registry, labels and types
// included, in both directions.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var docs, code []string
	for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
		docs = append(docs, m[1]+"{"+m[2]+"} "+m[3])
	}
	families, err := newTest(full()).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "gpuslot_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		code = append(code, f.GetName()+"{"+strings.Join(labels, ",")+"} "+strings.ToLower(f.GetType().String()))
	}
	slices.Sort(docs)
	slices.Sort(code)
	if diff := cmp.Diff(code, docs); diff != "" {
		t.Errorf("docs/metrics.md differs from the registry (-code +docs):\n%s", diff)
	}
}

func TestPages(t *testing.T) {
	ready := false
	h, err := newTest(full()).Handler(Web{Ready: func() bool { return ready }})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/-/ready"); code != http.StatusServiceUnavailable {
		t.Errorf("not ready: %d", code)
	}
	ready = true
	for path, says := range map[string]string{"/-/ready": "ready", "/-/healthy": "healthy", "/": "/metrics", "/metrics": "gpuslot_build_info"} {
		if code, body := get(path); code != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	for _, path := range []string{"/nothing", "/debug/pprof/"} {
		if code, _ := get(path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestOwnPage(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the node")) })
	h, err := newTest(full()).Handler(Web{Ready: func() bool { return true }, Page: page})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "the node", "/-/healthy": "gpuslotd is healthy.\n"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Body.String() != want {
			t.Errorf("%s: %q", path, w.Body)
		}
	}
}

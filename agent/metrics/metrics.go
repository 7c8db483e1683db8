// Package metrics shows the agent to Prometheus: series made from the last
// snapshot and nothing else, and the HTTP listener. It owns names and help
// texts of all metrics, which docs/metrics.md lists; it measures nothing
// itself. What is unknown is absent, never zero. Start at New.
package metrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/gpu"
)

// Metrics are the agent's metrics in a registry of their own.
type Metrics struct {
	registry   *prometheus.Registry
	read       func() (*status.Snapshot, *Usage)
	admissions *prometheus.CounterVec
	duration   prometheus.Histogram
	mismatches prometheus.Counter
	breaches   *prometheus.CounterVec
	servers    *prometheus.CounterVec
	faults     *prometheus.CounterVec
	foreign    *prometheus.CounterVec
	limited    *prometheus.CounterVec
	rules      *prometheus.CounterVec
	repaired   *prometheus.CounterVec
	panics     *prometheus.CounterVec
	refused    prometheus.Counter
	followed   *prometheus.CounterVec
}

// Build is what the program was built from.
type Build struct{ Version, Revision, GoVersion string }

// New registers everything. Snapshot is called at each scrape and must be quick.
func New(b Build, snapshot func() *status.Snapshot) *Metrics {
	return build(b, func() (*status.Snapshot, *Usage) {
		s := snapshot()
		return s, usageOf(s)
	})
}

func build(b Build, read func() (*status.Snapshot, *Usage)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), read: read,
		admissions: events("admissions_total", "Requests for admission, "+
			"by result (granted, held, requeued, denied) and reason.", "result", "reason"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gpuslot_admission_duration_seconds",
			Help:    "Time from a read request for admission to its reply.",
			Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 50e-3, 250e-3, 1},
		}),
		mismatches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gpuslot_slot_mismatches_total",
			Help: "Slots whose GPU or VRAM in the startd's ads differs from what their hook reported.",
		}),
		breaches: events("job_breaches_total", "Jobs that broke a rule (over-budget, clients, unattached, other-gpu, "+
			"left-cgroup), by what was done (report, hold, kill).", "gpu", "rule", "enforce"),
		servers: events("mps_server_deaths_total", "MPS servers that ended while they had clients.", "gpu"),
		faults: events("mps_faults_total", "Times that an MPS server was found in FAULT: "+
			"a client met a fatal GPU error, which ended the work of all.", "gpu"),
		foreign: events("control_daemon_foreign_changes_total",
			"Limits of control daemons that another program changed, by setting (memory-limit, thread-percentage).", "gpu",
			"setting"),
		rules: events("device_rules_total", "Jobs for which the device nodes of other MIG devices were closed, "+
			"by whether that was before their program ran (in-time, late), "+
			"or not at all (missing).", "when"),
		limited: events("cgroup_limits_total", "Jobs with a limit of the driver on their cgroups, "+
			"by whether it was set before they used the GPU (in-time, late).", "gpu", "when"),
		repaired: events("cgroup_reservations_repaired_total",
			"Reservations of VRAM that were left when a cgroup was removed first, and given back.", "gpu"),
		panics: events("conversation_panics_total",
			"Conversations on the agent's socket that ended with a defect of gpuslotd, by request.", "request"),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gpuslot_requests_refused_total",
			Help: "Requests on the agent's socket that were refused " +
				"because too many were under way, of an account or of all.",
		}),
		followed: events("repartition_changes_total",
			"Times that a GPU got another MIG layout because of the work that waits.", "gpu"),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "gpuslot_build_info",
		Help:        "What gpuslotd was built from; the value is 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion},
	})
	info.Set(1)
	m.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info,
		m.admissions, m.duration, m.mismatches, m.breaches, m.servers, m.faults, m.foreign, m.rules, m.limited, m.repaired,
		m.followed, m.panics, m.refused)
	return m
}

// events is a counter that is moved when something happens; the others come from snapshots.
func events(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gpuslot_" + name, Help: help}, labels)
}

// Admission counts one request for admission. Reason is a short word of a
// fixed set.
func (m *Metrics) Admission(result, reason string, took time.Duration) {
	m.admissions.WithLabelValues(result, reason).Inc()
	m.duration.Observe(took.Seconds())
}

// Breach counts a job that broke a rule, and what was done.
func (m *Metrics) Breach(u gpu.UUID, code int, enforce string) {
	m.breaches.WithLabelValues(string(u), cmp.Or(ruleNames[code], "other"), enforce).Inc()
}

// Expect begins the counters of a shared GPU at 0: a counter that is born at 1
// hides its first event from increase().
func (m *Metrics) Expect(u gpu.UUID) {
	for _, c := range []*prometheus.CounterVec{m.servers, m.faults} {
		c.WithLabelValues(string(u))
	}
	for _, rule := range ruleNames {
		m.breaches.WithLabelValues(string(u), rule, "hold")
	}
}

// ServerDied counts an MPS server that ended under its clients.
func (m *Metrics) ServerDied(u gpu.UUID) { m.servers.WithLabelValues(string(u)).Inc() }

// ServerFault counts an MPS server that was found in FAULT.
func (m *Metrics) ServerFault(u gpu.UUID) { m.faults.WithLabelValues(string(u)).Inc() }

// ForeignChange counts a limit that somebody else changed.
func (m *Metrics) ForeignChange(u gpu.UUID, setting string) {
	m.foreign.WithLabelValues(string(u), setting).Inc()
}

// DeviceRule counts a job by when it got its rule for device nodes, in the words of agent/isolation.
func (m *Metrics) DeviceRule(when string) { m.rules.WithLabelValues(when).Inc() }

// CgroupLimited counts a job whose cgroup got its limit.
func (m *Metrics) CgroupLimited(u gpu.UUID, late bool) {
	when := "in-time"
	if late {
		when = "late"
	}
	m.limited.WithLabelValues(string(u), when).Inc()
}

// ConversationPanicked counts a conversation that a defect broke off.
func (m *Metrics) ConversationPanicked(request string) { m.panics.WithLabelValues(request).Inc() }

// RequestRefused counts a request for which the agent had no room beside others.
func (m *Metrics) RequestRefused() { m.refused.Inc() }

// ReservationRepaired counts a reservation that its cgroup had left behind.
func (m *Metrics) ReservationRepaired(u gpu.UUID) { m.repaired.WithLabelValues(string(u)).Inc() }

// ruleNames are the names of the rules that jobs break, by a hold's code.
var ruleNames = map[int]string{
	api.CodeOverBudget:     "over-budget",
	api.CodeUnattached:     "unattached",
	api.CodeTooManyClients: "clients",
	api.CodeOtherGPU:       "other-gpu",
	api.CodeLeftCgroup:     "left-cgroup",
}

// Mismatch counts a slot on which hook and startd disagree.
func (m *Metrics) Mismatch() { m.mismatches.Inc() }

// LayoutFollowed counts a GPU that got another MIG layout because of waiting work.
func (m *Metrics) LayoutFollowed(u gpu.UUID) { m.followed.WithLabelValues(string(u)).Inc() }

// Gatherer has all of them.
func (m *Metrics) Gatherer() prometheus.Gatherer { return gatherer{m.registry, m.read} }

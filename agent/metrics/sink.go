package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/gpu"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gpuslot_"+name, help, labels, nil)
}

// collector reads one snapshot for each scrape. The registry checks its series: Describe
// sends nothing, as which of them a scrape has depends on the snapshot.
type collector struct {
	read func() (*status.Snapshot, *Usage)
}

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	s, u := c.read()
	collect(s, sink{to})
	u.collect(sink{to})
}

// sink takes the series of one scrape. Labels are in the order of the names in desc.
type sink struct{ to chan<- prometheus.Metric }

func (to sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	to.send(d, prometheus.GaugeValue, v, labels)
}

func (to sink) counter(d *prometheus.Desc, v float64, labels ...string) {
	to.send(d, prometheus.CounterValue, v, labels)
}

// send replaces what is not UTF-8, which the registry rejects: users choose the names of jobs.
func (to sink) send(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	to.to <- prometheus.MustNewConstMetric(d, t, v, labels...)
}

// knownGauge and knownCounter send what was measured, and nothing otherwise.
func (to sink) knownGauge(d *prometheus.Desc, v gpu.Measured[float64], labels ...string) {
	if v.Known {
		to.gauge(d, v.Value, labels...)
	}
}

func (to sink) knownCounter(d *prometheus.Desc, v gpu.Measured[float64], labels ...string) {
	if v.Known {
		to.counter(d, v.Value, labels...)
	}
}

package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/gpu"
)

// family is the name, the help and the names of the labels of one metric.
type family struct {
	name, help string
	labels     []string
}

func desc(name, help string, labels ...string) *family {
	return &family{name: "gpuslot_" + name, help: help, labels: labels}
}

// gatherer adds to a registry the series of one snapshot. A node has ten thousand of them, so
// they are made in few pieces and share their labels: a collector of the registry takes three
// times as long. What the registry would check, TestConsistency does.
type gatherer struct {
	registry *prometheus.Registry
	read     func() (*status.Snapshot, *Usage)
}

// Gather reads the snapshot once.
func (g gatherer) Gather() ([]*dto.MetricFamily, error) {
	all, err := g.registry.Gather()
	to := &sink{families: map[*family]*dto.MetricFamily{}}
	s, u := g.read()
	collect(s, to)
	u.collect(to)
	for _, f := range to.families {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all, err
}

// sink takes the series of one scrape. Labels are in the order of the names in desc.
type sink struct {
	families map[*family]*dto.MetricFamily
	// pairs are the labels of the series before, of these names and values: the series of one
	// slot come one after the other.
	names, values []string
	pairs         []*dto.LabelPair
	room          []point
}

// point is the value of a series, with all that dto wants around it.
type point struct {
	metric  dto.Metric
	gauge   dto.Gauge
	counter dto.Counter
	value   float64
}

func (to *sink) gauge(f *family, v float64, labels ...string) {
	s := to.next(f, dto.MetricType_GAUGE, labels)
	s.value, s.gauge.Value, s.metric.Gauge = v, &s.value, &s.gauge
}

func (to *sink) counter(f *family, v float64, labels ...string) {
	s := to.next(f, dto.MetricType_COUNTER, labels)
	s.value, s.counter.Value, s.metric.Counter = v, &s.value, &s.counter
}

// knownGauge and knownCounter send what was measured, and nothing otherwise.
func (to *sink) knownGauge(f *family, v gpu.Measured[float64], labels ...string) {
	if v.Known {
		to.gauge(f, v.Value, labels...)
	}
}

func (to *sink) knownCounter(f *family, v gpu.Measured[float64], labels ...string) {
	if v.Known {
		to.counter(f, v.Value, labels...)
	}
}

// next is a new series of a family.
func (to *sink) next(f *family, t dto.MetricType, labels []string) *point {
	const together = 128
	if len(to.room) == 0 {
		to.room = make([]point, together)
	}
	s := &to.room[0]
	to.room = to.room[1:]
	s.metric.Label = to.labelsOf(f, labels)
	all := to.families[f]
	if all == nil {
		all = &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: t.Enum()}
		to.families[f] = all
	}
	all.Metric = append(all.Metric, &s.metric)
	return s
}

// labelsOf are the labels of a series, in the order of their names. What is not UTF-8 is
// replaced: users choose the names of jobs.
func (to *sink) labelsOf(f *family, values []string) []*dto.LabelPair {
	if slices.Equal(f.labels, to.names) && slices.Equal(values, to.values) {
		return to.pairs
	}
	text, pairs := make([]string, len(values)), make([]dto.LabelPair, len(values))
	to.names, to.values, to.pairs = f.labels, slices.Clone(values), make([]*dto.LabelPair, len(values))
	for i, v := range values {
		text[i] = strings.ToValidUTF8(v, "\uFFFD")
		pairs[i].Name, pairs[i].Value = &f.labels[i], &text[i]
		to.pairs[i] = &pairs[i]
	}
	slices.SortFunc(to.pairs, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return to.pairs
}

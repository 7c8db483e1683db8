package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

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

// gatherer adds to a registry what one snapshot says. A node may have ten
// thousand series of slots: they are built in few pieces and share their labels,
// which takes a fifth of a collector's time. What the registry would check, a
// test does: TestConsistency.
type gatherer struct {
	registry *prometheus.Registry
	snapshot func() Snapshot
}

// Gather reads the snapshot once.
func (g gatherer) Gather() ([]*dto.MetricFamily, error) {
	all, err := g.registry.Gather()
	s, to := g.snapshot(), &sink{families: map[*family]*dto.MetricFamily{}}
	s.collect(to)
	for _, f := range to.families {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all, err
}

// sink takes the series of one scrape.
type sink struct {
	families map[*family]*dto.MetricFamily
	gauges   slab[gauge]
	counters slab[counter]
	pairs    slab[pair]
}

type gauge struct {
	metric dto.Metric
	gauge  dto.Gauge
	value  float64
}

type counter struct {
	metric  dto.Metric
	counter dto.Counter
	value   float64
}

type pair struct {
	label dto.LabelPair
	value string
}

// slab hands out places that do not move, many at a time.
type slab[T any] struct{ free []T }

func (s *slab[T]) next() *T {
	const together = 256
	if len(s.free) == 0 {
		s.free = make([]T, together)
	}
	p := &s.free[0]
	s.free = s.free[1:]
	return p
}

// labels are the labels of a series, in the order of the family's names.
// Whoever chose a job's name may have put anything into it.
func (to *sink) labels(f *family, values ...string) []*dto.LabelPair {
	out := make([]*dto.LabelPair, len(values))
	for i, v := range values {
		p := to.pairs.next()
		p.value = strings.ToValidUTF8(v, "\uFFFD")
		p.label.Name, p.label.Value = &f.labels[i], &p.value
		out[i] = &p.label
	}
	slices.SortFunc(out, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

func (to *sink) gauge(f *family, v float64, labels ...string) {
	to.gaugeOf(f, v, to.labels(f, labels...))
}

func (to *sink) counter(f *family, v float64, labels ...string) {
	to.counterOf(f, v, to.labels(f, labels...))
}

func (to *sink) gaugeOf(f *family, v float64, labels []*dto.LabelPair) {
	g := to.gauges.next()
	g.value = v
	g.gauge.Value = &g.value
	g.metric.Label, g.metric.Gauge = labels, &g.gauge
	to.add(f, dto.MetricType_GAUGE, &g.metric)
}

func (to *sink) counterOf(f *family, v float64, labels []*dto.LabelPair) {
	c := to.counters.next()
	c.value = v
	c.counter.Value = &c.value
	c.metric.Label, c.metric.Counter = labels, &c.counter
	to.add(f, dto.MetricType_COUNTER, &c.metric)
}

func (to *sink) add(f *family, t dto.MetricType, m *dto.Metric) {
	x := to.families[f]
	if x == nil {
		x = &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: t.Enum()}
		to.families[f] = x
	}
	x.Metric = append(x.Metric, m)
}

// knownGauge and knownCounter take what was measured.
func (to *sink) knownGauge(f *family, v gpu.Measured[float64], labels []*dto.LabelPair) {
	if v.Known {
		to.gaugeOf(f, v.Value, labels)
	}
}

func (to *sink) knownCounter(f *family, v gpu.Measured[float64], labels []*dto.LabelPair) {
	if v.Known {
		to.counterOf(f, v.Value, labels)
	}
}

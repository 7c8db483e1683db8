package advise

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
)

// Options are what the advice depends on beside the records.
type Options struct {
	// Config is the site's: the quantum and the least of requests, and growth.
	Config config.Config
	// Risk is the part of the jobs that may need more than a recommended request,
	// 0 to 1; 0 means DefaultRisk.
	Risk float64
	// Since drops jobs that ended before it; zero keeps all.
	Since time.Time
	// Changed is when the site changed how GPUs are given; zero lets it be found
	// where jobs begin to share GPUs.
	Changed time.Time
	// Nodes, if any, are inventories of the nodes that the advice is for: their
	// CPUs and memory then bound how many jobs fit.
	Nodes []gpu.Inventory
}

// DefaultRisk is one job in twenty.
const DefaultRisk = 0.05

// Confidence is that of every promise.
const Confidence = 0.95

// Bounds of memory: records are others' words.
const (
	// mostFamilies is how many kinds of jobs are told apart.
	mostFamilies = 20000
	// mostRequests is how many different request_vram of a family are.
	mostRequests = 64
)

// noRequest stands for jobs that asked for no VRAM.
const noRequest = int64(-1)

// Adviser takes records, one after the other in any order, and advises. It keeps 16
// to 40 bytes of each, to know those that come twice.
type Adviser struct {
	options  Options
	families map[Key]family
	models   map[string]*model
	seen     map[uint64]struct{}
	nodes    map[string]struct{}
	// offers are those that were planned already.
	offers map[offerKey]planned

	records, twice, early, folded int
	// nameless have no program.
	nameless         int
	newest, from, to time.Time
	// firstShared is when jobs began to share GPUs.
	firstShared time.Time
}

// family are the jobs of a key by what they asked for.
type family map[int64]*spans

// spans are the jobs before the change and after it.
type spans struct{ before, after tally }

func (s *spans) all() *tally {
	var t tally
	t.merge(&s.before)
	t.merge(&s.after)
	return &t
}

func (s *spans) merge(o *spans) {
	s.before.merge(&o.before)
	s.after.merge(&o.after)
}

// NewAdviser has read no record yet.
func NewAdviser(o Options) *Adviser {
	if o.Risk == 0 {
		o.Risk = DefaultRisk
	}
	b := &Adviser{options: o, families: map[Key]family{}, models: map[string]*model{}, seen: map[uint64]struct{}{},
		nodes: map[string]struct{}{}, offers: map[offerKey]planned{}}
	for _, inv := range o.Nodes {
		b.learnNode(inv)
	}
	return b
}

// Add takes one record.
func (b *Adviser) Add(j record.Job) {
	if j.End.After(b.newest) {
		b.newest = j.End
	}
	j = plausible(j)
	if j.End.Before(b.options.Since) {
		b.early++
		return
	}
	id := identity(j)
	if _, ok := b.seen[id]; ok {
		b.twice++
		return
	}
	b.seen[id] = struct{}{}
	b.records++
	if b.records == 1 || j.Begin.Before(b.from) {
		b.from = j.Begin
	}
	if j.End.After(b.to) {
		b.to = j.End
	}
	if j.Program == "" {
		b.nameless++
	}
	if j.Node != "" {
		b.nodes[j.Node] = struct{}{}
	}
	j.Model = shown(j.Model)
	b.learnModel(j)
	if shared(j) && (b.firstShared.IsZero() || j.Begin.Before(b.firstShared)) {
		b.firstShared = j.Begin
	}
	key := keyOf(j)
	s := b.spansOf(key, j)
	t := &s.before
	if b.isAfter(j) {
		t = &s.after
	}
	t.add(j, key.GPUs, b.options.Config.RequestVRAM.Quantum)
}

// plausible drops numbers that no job has: records may come from anywhere.
func plausible(j record.Job) record.Job {
	seconds := min(j.Seconds(), longest)
	drop := func(v **float64, most float64) {
		if *v != nil && !(**v >= 0 && **v <= most) {
			*v = nil
		}
	}
	for _, v := range []**float64{&j.SM.Min, &j.SM.Estimate, &j.SM.Max, &j.DRAMSeconds, &j.IdleSeconds} {
		drop(v, seconds*1.01+1)
	}
	for _, v := range []**float64{&j.Joules.Min, &j.Joules.Estimate, &j.Joules.Max} {
		drop(v, mostWatts*(seconds+1))
	}
	drop(&j.Requested.CPUs, gpu.MaxCPUs)
	if j.Begin.Before(j.End.Add(-longest * time.Second)) {
		j.Begin = j.End.Add(-longest * time.Second)
	}
	return j
}

const (
	// longest is ten years in seconds.
	longest = 10 * 366 * 86400
	// mostWatts is more than any GPU draws.
	mostWatts = 10000
)

// isAfter reports on which side of the change a job is.
func (b *Adviser) isAfter(j record.Job) bool {
	if b.options.Changed.IsZero() {
		return shared(j)
	}
	return !j.Begin.Before(b.options.Changed)
}

// changed is when the jobs after the change begin; zero if there are none.
func (b *Adviser) changed() time.Time {
	if b.options.Changed.IsZero() {
		return b.firstShared
	}
	return b.options.Changed
}

// folding is the key of all families beyond the most.
var folding = Key{User: "(others)", GPUs: 1}

func (b *Adviser) spansOf(key Key, j record.Job) *spans {
	f, ok := b.families[key]
	if !ok && len(b.families) >= mostFamilies {
		b.folded++
		key = folding
		f, ok = b.families[key]
	}
	if !ok {
		f = family{}
		b.families[key] = f
	}
	asked := noRequest
	if r := j.Requested.VRAMMiB; r != nil && *r > 0 {
		asked = *r
	}
	if f[asked] == nil && len(f) >= mostRequests {
		asked = noRequest
	}
	if f[asked] == nil {
		f[asked] = &spans{}
	}
	return f[asked]
}

// Package advise turns the records of jobs into advice: how much VRAM each class
// of jobs should ask for, how many fit a GPU, whether MPS, MIG or whole GPUs serve
// it, and what that would bring. It is pure, knows no node, and lets agent/plan and
// mig say what fits. What it promises holds whatever the jobs' distribution; where
// the records do not tell, it says so. Start at Book.
package advise

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Schema is the first field of the advice as JSON.
const Schema = "gpuslot-advice/1"

// Advice is everything that the records say.
type Advice struct {
	Schema string `json:"schema"`
	// From and To are the first begin and the last end.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Records are those that count: one for each job and GPU. Twice came again, Early
	// ended before the time asked for.
	Records int `json:"records"`
	Twice   int `json:"records_twice,omitempty"`
	Early   int `json:"records_too_early,omitempty"`
	Nodes   int `json:"nodes,omitempty"`
	GPUs    int `json:"gpus"`
	// Newest is the end of the last job of all, too early or not.
	Newest time.Time `json:"newest,omitzero"`
	// Risk is the one asked for, Confidence that of every promise.
	Risk       float64 `json:"risk"`
	Confidence float64 `json:"confidence"`
	// Changed is when GPUs began to be given otherwise; absent if they did not.
	Changed *time.Time `json:"changed,omitempty"`
	// Users and Classes by reserved GPU-hours, the most first.
	Users    []User    `json:"users"`
	Classes  []*Class  `json:"classes"`
	Settings []Setting `json:"settings"`
	// Before and after of all jobs together.
	Comparison *Comparison `json:"comparison,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
}

// Hours are GPU-hours of whole GPUs.
type Hours struct {
	Reserved float64 `json:"reserved_gpu_hours"`
	// Used is the multiprocessors' time of the jobs of which it is known, Unused what
	// these reserved and did not use; Unknown is what the others reserved.
	Used    Range   `json:"used_gpu_hours,omitzero"`
	Unused  Range   `json:"unused_gpu_hours,omitzero"`
	Unknown float64 `json:"reserved_gpu_hours_use_unknown"`
}

// User sums up a user's jobs.
type User struct {
	User string `json:"user"`
	Jobs int    `json:"jobs"`
	Hours
}

// Class is the advice for jobs that are alike.
type Class struct {
	Key
	// Asked are their request_vram in MiB in the order of time, 0 for none.
	Asked []int64 `json:"request_vram_mib"`
	Jobs  int     `json:"jobs"`
	// Grown ran again with a larger request.
	Grown int `json:"jobs_grown,omitempty"`
	Hours
	// Minutes is the run time. SM and MemoryTraffic are the parts of the time in
	// which the multiprocessors and the memory interface were busy.
	Minutes       Range `json:"run_minutes,omitzero"`
	SM            Range `json:"sm_activity,omitzero"`
	MemoryTraffic Range `json:"memory_activity,omitzero"`
	// Peaks is the distribution of the jobs' largest VRAM, by budgets.
	Peaks []Peak `json:"vram_peaks,omitempty"`
	// StepMiB is that of the budgets.
	StepMiB int64 `json:"vram_step_mib"`
	// MedianMiB and LargestMiB are of those.
	MedianMiB  int64   `json:"vram_peak_median_mib,omitempty"`
	LargestMiB int64   `json:"vram_peak_largest_mib,omitempty"`
	Curve      *Curve  `json:"vram_curve,omitempty"`
	Request    Request `json:"request"`
	Verdict    Verdict `json:"present_request"`
	Fit        *Fit    `json:"fit,omitempty"`
	Mode       Mode    `json:"mode"`
	Expect     Expect  `json:"expect"`
	// Submit are the lines for the submit file.
	Submit     []string    `json:"submit_lines,omitempty"`
	Comparison *Comparison `json:"comparison,omitempty"`
	Notes      []string    `json:"notes,omitempty"`

	reserved float64
	model    string
}

// Peak is a number of jobs whose largest VRAM a budget holds, and the next
// smaller one does not.
type Peak struct {
	MiB  int64 `json:"mib"`
	Jobs int   `json:"jobs"`
}

// Advise makes the advice of what was added so far.
func (b *Book) Advise() Advice {
	a := Advice{
		Schema: Schema, Records: b.records, Twice: b.twice, Early: b.early, Nodes: len(b.nodes), Newest: b.newest.UTC(),
		Risk: b.options.Risk, Confidence: Confidence, Users: []User{}, Classes: []*Class{}, Settings: []Setting{},
	}
	clear(b.offers)
	for _, m := range b.models {
		m.settle()
	}
	g := growth{b.options.Config.Growth.Retries, b.options.Config.Growth.Factor}
	users := map[string]*tally{}
	var all spans
	for key, f := range b.families {
		for _, c := range f.classes(key, g, b.options.Config.RequestVRAM.Quantum) {
			a.Classes = append(a.Classes, b.class(&c, g))
			all.merge(&c.spans)
			if users[key.User] == nil {
				users[key.User] = &tally{}
			}
			users[key.User].merge(c.all())
		}
	}
	slices.SortFunc(a.Classes, func(x, y *Class) int {
		return cmp.Or(cmp.Compare(y.reserved, x.reserved), compareKeys(x.Key, y.Key), slices.Compare(x.Asked, y.Asked))
	})
	for u, t := range users {
		a.Users = append(a.Users, User{u, int(math.Round(t.jobs)), t.hours()})
	}
	slices.SortFunc(a.Users, func(x, y User) int {
		return cmp.Or(cmp.Compare(y.Reserved, x.Reserved), cmp.Compare(x.User, y.User))
	})
	a.From, a.To = b.from.UTC(), b.to.UTC()
	a.settle(b)
	a.Comparison = all.compared(1)
	b.date(&a)
	b.note(&a)
	return a
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Program, b.Program), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.GPUs, b.GPUs))
}

// settle adds the lines of each model.
func (a *Advice) settle(b *Book) {
	for _, name := range slices.Sorted(maps.Keys(b.models)) {
		m := b.models[name]
		n, _ := m.count()
		a.GPUs += n
		var of []*Class
		for _, c := range a.Classes {
			if c.model == name {
				of = append(of, c)
			}
		}
		if len(of) > 0 {
			a.Settings = append(a.Settings, b.setting(m, of))
		}
	}
}

// date says when the change was.
func (b *Book) date(a *Advice) {
	if a.Comparison != nil {
		when := b.changed().UTC()
		a.Changed = &when
	}
}

// class advises on one.
func (b *Book) class(c *class, g growth) *Class {
	r, all := b.options.Config.RequestVRAM, c.all()
	c.from, c.to, c.changed = b.from, b.to, b.changed()
	out := &Class{Key: c.key, Jobs: int(math.Round(all.jobs)), Grown: c.grown, Hours: all.hours(), Minutes: scaled(all.seconds, 1.0/60), Curve: all.curves.typical()}
	for _, asked := range c.asked {
		out.Asked = append(out.Asked, max(0, asked))
	}
	out.reserved = all.reserved.s / 3600
	base := c.base()
	out.SM, out.MemoryTraffic = activityOf(base), plainOf(base.dram)
	d := needsOf(all, r.Quantum, r.Minimum)
	out.shape(d)
	out.model = mostUsed(all.models)
	m := b.models[out.model]
	pool, largest := gpu.MiB(1), gpu.MiB(math.MaxInt32)
	as, err := b.offer(m, 0)
	if err == nil {
		pool, largest = as.Pool, as.LargestRequest
	}
	act := activities{out.SM, out.MemoryTraffic}
	out.Request = d.recommend(b.options.Risk, g, pool, largest)
	isolation := false
	if err == nil {
		f, err := b.fit(c, out.Request, d, act, m)
		if err == nil {
			out.Fit = &f
		}
		isolation = b.options.Config.For("", m.card).Isolation
	}
	if out.Fit == nil {
		out.Mode = Mode{Kind: Unknown, Contention: unknown, Why: []string{whyNoFit(err)}}
	} else {
		out.Mode = decide(c.key, out.Request, *out.Fit, act, isolation)
		out.Expect = expect(c, out.Mode, *out.Fit, act, out.Request, m.power)
	}
	out.Verdict = verdict(c.asked[len(c.asked)-1], out.Request, d, b.options.Risk)
	out.Submit = submitLines(c.key, out.Request, out.Mode)
	out.Comparison = c.compared(c.key.GPUs)
	out.note(all, d, m)
	return out
}

// activityOf: the bounds of the attribution and the doubt of the sample.
func activityOf(t *tally) Range {
	if t.smMost.n < fewest {
		return Range{}
	}
	r := boundsOf(t.smLeast, t.sm, t.smMost)
	// Idle time bounds it too.
	if low, _, _, ok := t.idle.interval(); ok && t.idle.n >= fewest && r.High != nil && 1-low < *r.High && (r.Expected == nil || 1-low > *r.Expected) {
		r.High = digits(1 - low)
	}
	return r
}

func plainOf(r ratio) Range {
	low, v, high, ok := r.interval()
	if !ok || r.n < fewest {
		return Range{}
	}
	return rangeOf(low, v, high)
}

func mostUsed(models map[string]int) string {
	best := ""
	for _, m := range slices.Sorted(maps.Keys(models)) {
		if m != "" && (best == "" || models[m] > models[best]) {
			best = m
		}
	}
	return best
}

func (t *tally) hours() Hours {
	h := Hours{Reserved: round3(t.reserved.s / 3600)}
	if t.usedMost.n == 0 {
		h.Unknown = h.Reserved
		return h
	}
	hour := func(s float64) *float64 { v := round3(max(0, s) / 3600); return &v }
	h.Unknown = *hour(t.reserved.s - t.usedMost.t)
	h.Used.High, h.Unused.Low = hour(t.usedMost.s), hour(t.usedMost.t-t.usedMost.s)
	if t.usedLeast.n > 0 {
		h.Used.Low, h.Unused.High = hour(t.usedLeast.s), hour(t.usedLeast.t-t.usedLeast.s)
	}
	if t.used.n > 0 {
		h.Used.Expected, h.Unused.Expected = hour(t.used.s), hour(t.used.t-t.used.s)
	}
	return h
}

// shape tells the distribution.
func (c *Class) shape(d needs) {
	c.StepMiB = int64(d.quantum)
	for i, b := range d.budgets {
		c.Peaks = append(c.Peaks, Peak{int64(b) * int64(d.quantum), d.counts[i]})
	}
	if m, ok := d.quantile(0.5); ok {
		l, _ := d.quantile(1)
		c.MedianMiB, c.LargestMiB = int64(m), int64(l)
	}
}

func mib(m int64) gpu.MiB { return gpu.MiB(m) }

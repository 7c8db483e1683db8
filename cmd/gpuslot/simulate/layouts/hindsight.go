package layouts

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// hindsight is the best static layout of all for jobs that name their profile: they start on
// instances of this profile only, so what the jobs of a profile wait follows from the
// number of these instances alone. It is not found for jobs that may use larger instances.
func hindsight(n Node, traces []Trace, c *mig.Catalogue) (texts []string, ok bool, err error) {
	profiles, of, err := byProfile(n, traces)
	if err != nil || profiles == nil {
		return nil, false, err
	}
	offers, err := offersOf(n.Chip, c, profiles)
	if err != nil {
		return nil, false, err
	}
	most := 0
	for _, o := range offers {
		most = max(most, slices.Max(o.counts))
	}
	queues := make([][]outcome, len(profiles))
	for k := range profiles {
		for instances := range most*n.GPUs + 1 {
			queues[k] = append(queues[k], serve(of[k], instances))
		}
	}
	var best []string
	var score outcome
	for _, o := range together(offers, n.GPUs) {
		var sum outcome
		for k, instances := range o.counts {
			sum.started += queues[k][instances].started
			sum.waited += queues[k][instances].waited
		}
		if best == nil || sum.better(score) {
			best, score = o.texts, sum
		}
	}
	return best, best != nil, nil
}

// byProfile sorts the jobs of each trace by profile and arrival; no profiles if a job names none.
func byProfile(n Node, traces []Trace) (profiles []gpu.Profile, of [][]Trace, err error) {
	for i, t := range traces {
		t = slices.Clone(t)
		slices.SortStableFunc(t, func(a, b Job) int { return cmp.Compare(a.Arrival, b.Arrival) })
		for _, j := range t {
			if j.Profile == "" {
				return nil, nil, nil
			}
			p, err := mig.ProfileNamed(n.Chip, j.Profile)
			if err != nil {
				return nil, nil, err
			}
			k := slices.IndexFunc(profiles, func(q gpu.Profile) bool { return q.ID == p.ID })
			if k < 0 {
				k = len(profiles)
				profiles, of = append(profiles, p), append(of, make([]Trace, len(traces)))
			}
			of[k][i] = append(of[k][i], j)
		}
	}
	return profiles, of, nil
}

// outcome is what jobs got: how many started, and how long they waited together.
type outcome struct {
	started int
	waited  time.Duration
}

func (o outcome) better(p outcome) bool {
	return o.started > p.started || o.started == p.started && o.waited < p.waited
}

// ends are when instances become free, the first of them first.
type ends []time.Duration

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(time.Duration)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// serve runs each trace on so many instances, first come, first served.
func serve(traces []Trace, instances int) (o outcome) {
	for _, t := range traces {
		if instances == 0 {
			break
		}
		free := make(ends, instances)
		for _, j := range t {
			start := max(j.Arrival, free[0])
			o.started++
			o.waited += start - j.Arrival
			free[0] = start + j.Duration
			heap.Fix(&free, 0)
		}
	}
	return o
}

// offer is how many instances of each profile the layouts of some GPUs have.
type offer struct {
	counts []int
	texts  []string
}

func offersOf(chip gpu.Chip, c *mig.Catalogue, profiles []gpu.Profile) (all []offer, err error) {
	ls, err := c.Layouts(chip)
	if err != nil {
		return nil, err
	}
	for l := range ls.Maximal() {
		counts := make([]int, len(profiles))
		for k, p := range profiles {
			counts[k] = number(l, &class{profile: p})
		}
		if !slices.ContainsFunc(all, func(o offer) bool { return slices.Equal(o.counts, counts) }) {
			all = append(all, offer{counts, []string{mig.FormatCounts(chip, l)}})
		}
	}
	return all, nil
}

// together are all sums of what so many GPUs offer, each once.
func together(offers []offer, gpus int) (sums []offer) {
	sums = []offer{{counts: make([]int, len(offers[0].counts))}}
	for range gpus {
		seen := map[string]bool{}
		var next []offer
		for _, s := range sums {
			for _, o := range offers {
				counts := slices.Clone(s.counts)
				var key strings.Builder
				for k := range counts {
					counts[k] += o.counts[k]
					key.WriteRune(rune(counts[k]))
				}
				if !seen[key.String()] {
					seen[key.String()] = true
					next = append(next, offer{counts, append(slices.Clip(s.texts), o.texts[0])})
				}
			}
		}
		sums = next
	}
	return sums
}

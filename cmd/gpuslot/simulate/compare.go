package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
	"github.com/gpuslot/gpuslot/gpu"
)

// Compare runs every policy on the same jobs, several at once, each with a stream of
// its own from jobs. The same jobs are those that every policy has a slot for; Refused is
// what a policy has none for. Several policies run in all of sharing.Cases, from which
// Gain and Energy have their bounds. Watch gets each one's progress; it may be nil, and is
// called by one policy at a time. When the context ends, the results are what is known so
// far, with the context's error.
func Compare(ctx context.Context, pool Pool, policies []Policy, jobs func() Jobs,
	watch func(policy int, p Progress)) ([]Result, error) {
	common, left, err := inCommon(ctx, pool, policies, jobs)
	if err != nil {
		return make([]Result, len(policies)), err
	}
	cases := sharing.Cases()
	if len(policies) == 1 {
		cases = cases[:1] // there is nothing to compare it with
	}
	results, errs := make([][]Result, len(policies)), make([]error, len(policies)*len(cases))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	mean := &meanProgress{watch: watch, of: make([][]Progress, len(policies))}
	var all sync.WaitGroup
	for i, p := range policies {
		results[i], mean.of[i] = make([]Result, len(cases)), make([]Progress, len(cases))
		for k, c := range cases {
			free <- struct{}{}
			all.Go(func() {
				defer func() { <-free }()
				in := pool
				in.Model.Case = c
				var err error
				results[i][k], err = Run(ctx, in, p, common(), Options{Progress: func(at Progress) { mean.tell(i, k, at) }})
				switch {
				case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
				case err != nil:
					errs[i*len(cases)+k] = fmt.Errorf("policy %s: %w", p.Name, err)
				}
			})
		}
	}
	all.Wait()
	return compared(results, left), errors.Join(errors.Join(errs...), ctx.Err())
}

// compared are the expected results, each with what the first policy makes of it.
func compared(results [][]Result, left []int) []Result {
	var out []Result
	for i, of := range results {
		r := of[0]
		r.Refused += left[i]
		r.Gain = against(of, results[0], func(r Result) float64 {
			if r.Full == nil {
				return 0
			}
			return r.Full.Work
		})
		r.Energy = against(of, results[0], func(r Result) float64 { return r.KJPerJob })
		out = append(out, r)
	}
	return out
}

// against is a value by that of the first policy. What is assumed may hold for one policy
// and not for the other, so that the bounds are of the best beside the worst.
func against(of, first []Result, value func(Result) float64) *Interval {
	bounds := func(rs []Result) (low, high float64) {
		low, high = value(rs[0]), value(rs[0])
		for _, r := range rs {
			low, high = min(low, value(r)), max(high, value(r))
		}
		return low, high
	}
	low, high := bounds(of)
	least, most := bounds(first)
	switch {
	case low <= 0 || least <= 0:
		return nil
	case &of[0] == &first[0]:
		return &Interval{1, 1, 1}
	}
	return &Interval{low / most, value(of[0]) / value(first[0]), high / least}
}

// meanProgress tells of a policy how far its runs are in the mean.
type meanProgress struct {
	sync.Mutex
	watch func(int, Progress)
	of    [][]Progress
}

func (m *meanProgress) tell(policy, run int, at Progress) {
	if m.watch == nil {
		return
	}
	m.Lock()
	defer m.Unlock()
	m.of[policy][run] = at
	var sum Progress
	for _, p := range m.of[policy] {
		sum.At, sum.Read = max(sum.At, p.At), sum.Read+p.Read
		sum.Started, sum.Ended = sum.Started+p.Started, sum.Ended+p.Ended
	}
	n := len(m.of[policy])
	m.watch(policy, Progress{At: sum.At, Read: sum.Read / n, Started: sum.Started / n, Ended: sum.Ended / n})
}

// Usual are the policies that a comparison has without being asked: exclusive use, and
// what the pool's GPUs allow. Shares is how many jobs share a GPU, 0 for as the plan chooses.
func (f File) Usual(shares int) ([]Policy, error) {
	all, err := f.Named(shares)
	if err != nil {
		return nil, err
	}
	divisible, configured, other, nodes := false, false, false, 0
	for _, g := range f.Pool.Groups {
		configured, other = configured || g.Config != "", other || g.Config != mpsConfig(cmp.Or(shares, f.Shares))
		if slices.ContainsFunc(g.Inventory.GPUs, func(one gpu.GPU) bool { return one.MIGCapable }) {
			divisible, nodes = true, nodes+g.Count
		}
	}
	var out []Policy
	for _, p := range all {
		switch p.Name {
		case nameStatic:
			if !divisible {
				continue
			}
		case nameDynamic:
			if !divisible || nodes > maxFollowing {
				continue
			}
		case nameMixed:
			if !configured || !other { // it would be mps again
				continue
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// maxFollowing is the number of nodes with MIG up to which dynamic MIG is usual: each of them
// looks at what waits every minute, which costs some seconds for a day of so many.
const maxFollowing = 64

// Named are all policies by their names: the ones of this package, then the file's own.
func (f File) Named(shares int) ([]Policy, error) {
	if shares == 0 {
		shares = f.Shares
	}
	static, err := StaticMIG(f.Pool, f.Layouts)
	if err != nil {
		return nil, err
	}
	dynamic, err := DynamicMIG(f.Pool)
	if err != nil {
		return nil, err
	}
	return append([]Policy{Exclusive(), TimeSlicing(shares), MPS(shares), static, dynamic, Mixed()}, f.Policies...), nil
}

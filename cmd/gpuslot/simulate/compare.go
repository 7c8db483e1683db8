package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/gpu"
)

// Compare runs every policy on the same jobs, several at once, each with a stream of
// its own from jobs. Watch gets each one's progress; it may be nil, and is called by one
// policy at a time. When the context ends, the results are what is known so
// far, with the context's error.
func Compare(ctx context.Context, pool Pool, policies []Policy, jobs func() Jobs,
	watch func(policy int, p Progress)) ([]Result, error) {
	results, errs := make([]Result, len(policies)), make([]error, len(policies))
	var turn sync.Mutex
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, p := range policies {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			o := Options{}
			if watch != nil {
				o.Progress = func(at Progress) {
					turn.Lock()
					defer turn.Unlock()
					watch(i, at)
				}
			}
			var err error
			results[i], err = Run(ctx, pool, p, jobs(), o)
			switch {
			case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			case err != nil:
				errs[i] = fmt.Errorf("policy %s: %w", p.Name, err)
			}
		})
	}
	all.Wait()
	return results, errors.Join(errors.Join(errs...), ctx.Err())
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
		configured, other = configured || g.Config != "", other || g.Config != sharing(cmp.Or(shares, f.Shares))
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

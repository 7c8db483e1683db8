package simulate

import (
	"context"
	"errors"
	"io"
)

// inCommon is the stream of the jobs that every policy has a slot for, and how many each
// policy has none for.
func inCommon(ctx context.Context, pool Pool, policies []Policy, jobs func() Jobs) (
	common func() Jobs, left []int, err error) {
	left = make([]int, len(policies))
	if len(policies) == 1 {
		return jobs, left, nil // Run counts its own
	}
	var worlds []*world
	for _, p := range policies {
		w, err := newWorld(pool, p, nil, Options{})
		if err != nil {
			return nil, nil, err
		}
		worlds = append(worlds, w)
	}
	var out []bool // of each job, in order; cut behind the last one
	n := 0
	for stream := jobs(); ; n++ {
		if n%(1<<12) == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		j, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if err := j.Check(); err != nil {
			return jobs, left, nil //nolint:nilerr // Run says which job it is
		}
		for i, w := range worlds {
			if len(w.queue.classes[w.queue.class(w, j)].shapes) > 0 {
				continue
			}
			left[i]++
			for len(out) <= n {
				out = append(out, false)
			}
			out[n] = true
		}
	}
	if out == nil {
		return jobs, left, nil
	}
	return func() Jobs { return &without{from: jobs(), out: out} }, left, nil
}

// without leaves jobs of a stream out.
type without struct {
	from Jobs
	out  []bool
	next int
}

// Next is the next job that is not left out.
func (w *without) Next() (Job, error) {
	for {
		j, err := w.from.Next()
		w.next++
		if err != nil || w.next > len(w.out) || !w.out[w.next-1] {
			return j, err
		}
	}
}

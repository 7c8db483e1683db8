package bench

import (
	"errors"
	"slices"
)

// Join is several results of one command on one GPU as one, as a GPU must be
// measured once in MIG mode and once out of it. What one of them did not measure
// and another did is not missing.
func Join(results ...Result) (Result, error) {
	if len(results) == 0 {
		return Result{}, errors.New("there is no result")
	}
	out := results[0]
	out.Runs, out.Skipped = slices.Clone(out.Runs), slices.Clone(out.Skipped)
	for _, r := range results[1:] {
		if r.Machine.GPU.UUID != out.Machine.GPU.UUID || !slices.Equal(r.Command, out.Command) ||
			r.Simulated != out.Simulated {
			return Result{}, errors.New("results of different GPUs or commands cannot be joined")
		}
		out.Runs = append(out.Runs, r.Runs...)
		out.Served = append(slices.Clone(out.Served), r.Served...)
		out.Skipped = append(out.Skipped, r.Skipped...)
	}
	out.Skipped = slices.DeleteFunc(out.Skipped, func(s Skip) bool {
		same := func(m Mode, copies int) bool { return m == s.Mode && (s.Copies == 0 || s.Copies == copies) }
		return slices.ContainsFunc(out.Runs, func(r Run) bool { return same(r.Mode, r.Copies) }) ||
			slices.ContainsFunc(out.Served, func(r Served) bool { return same(r.Mode, r.Copies) })
	})
	out.number()
	return out, out.Check()
}

// number counts the repeats of each point again.
func (r *Result) number() {
	seen := map[key]int{}
	for i := range r.Runs {
		k := key{r.Runs[i].Mode, r.Runs[i].Copies, r.Runs[i].Profile, 0}
		seen[k]++
		r.Runs[i].Repeat = seen[k]
	}
}

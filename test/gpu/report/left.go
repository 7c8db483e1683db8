package report

import (
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
)

// Left are the numbers of copies that some mode was to be measured with when the time
// limit of gpuslot bench had passed.
func Left(r bench.Result) (copies []int) {
	for _, s := range r.Skipped {
		measured := slices.ContainsFunc(r.Runs, func(run bench.Run) bool { return run.Mode == s.Mode && run.Copies == s.Copies })
		if s.Copies > 0 && !measured && strings.Contains(s.Reason, "--time-limit") {
			copies = append(copies, s.Copies)
		}
	}
	slices.Sort(copies)
	return slices.Compact(copies)
}

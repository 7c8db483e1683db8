package rules

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestLaws: which rules a job breaks, at their edges.
func TestLaws(t *testing.T) {
	site := defaultRules()
	limit := site.Budgets.Limit(4096)
	pids := func(n int) []int { return slices.Repeat([]int{200}, n) }
	for name, c := range map[string]struct {
		change func(j *Job)
		broken []int
	}{
		"all it may have":          {func(j *Job) { j.Memory = gpu.Known(gpu.Bytes(limit * mib)) }, nil},
		"more":                     {func(j *Job) { j.Memory = gpu.Known(gpu.Bytes((limit + 1) * mib)) }, []int{api.CodeOverBudget}},
		"as many processes":        {func(j *Job) { j.PIDs = pids(6) }, nil},
		"one process more":         {func(j *Job) { j.PIDs = pids(7) }, []int{api.CodeTooManyClients}},
		"it is beside MPS":         {func(j *Job) { j.PIDs, j.Beside = pids(7), []int{201} }, []int{api.CodeUnattached}},
		"any number":               {func(j *Job) { j.PIDs, j.MostClients = pids(100), 0 }, nil},
		"one where one may be":     {func(j *Job) { j.PIDs, j.MostClients = pids(2), 1 }, []int{api.CodeTooManyClients}},
		"processes are not known":  {func(j *Job) { j.PIDs, j.Beside, j.Known = pids(7), []int{201}, false }, nil},
		"on another GPU":           {func(j *Job) { j.Elsewhere = []Stray{{300, uuid(1)}} }, []int{api.CodeOtherGPU}},
		"outside":                  {func(j *Job) { j.Outside = []int{300} }, []int{api.CodeLeftCgroup}},
		"without a limit's cgroup": {func(j *Job) { j.Unbound = true }, []int{api.CodeLeftCgroup}},
	} {
		j := jobUsing(100)
		c.change(&j)
		var broken []int
		for _, l := range j.laws(site) {
			if l.broken {
				broken = append(broken, l.code)
			}
		}
		if d := cmp.Diff(c.broken, broken); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

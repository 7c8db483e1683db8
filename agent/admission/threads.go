package admission

import (
	"fmt"
	"strconv"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// leastThreads is the smallest percentage that a control daemon keeps.
const leastThreads = 0.1

// threadsOf is the active thread percentage of a job: what the policy gives it,
// or what it asks for in RequestGPUThreads within the site's bound.
func threadsOf(g *plan.GPU, budget gpu.MiB, job *api.Job) (percent float64, refusal *api.Refusal) {
	own, _ := g.ThreadPercentage(budget)
	if job.RequestThreads == "" {
		return own, nil
	}
	most := g.MostThreads(budget)
	asked, err := strconv.ParseFloat(job.RequestThreads, 64)
	switch {
	case err != nil || !(asked >= leastThreads && asked <= 100): // NaN too
		return 0, api.Refuse(api.CodeBadThreads, fmt.Sprintf("RequestGPUThreads = %s is no percentage of a GPU's "+
			"multiprocessors: write a number without quotes, such as +RequestGPUThreads = %s, or leave it "+
			"out", foreign.Clip(job.RequestThreads), percentText(own)))
	case asked > most:
		return 0, api.Refuse(api.CodeBadThreads, fmt.Sprintf("RequestGPUThreads = %s is more than a job with %s may "+
			"have on %s (%s): write +RequestGPUThreads = %s or less, or leave it "+
			"out", foreign.Clip(job.RequestThreads), budget, g.UUID, g.Name, percentText(most)))
	}
	return asked, nil
}

// percentText has the one decimal that the control daemon keeps, rounded down.
func percentText(percent float64) string {
	return strconv.FormatFloat(float64(int64(percent*10+1e-6))/10, 'f', -1, 64)
}

package admission

import (
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// mostAssigned is more ids than a slot has: GPUs, or shares of one.
const mostAssigned = 256

// bounded is what a caller says of a job, within bounds: it goes into logs,
// records, slot ads and root's terminal.
func bounded(job api.Job) *api.Job {
	for _, word := range []*string{
		&job.ID, &job.Owner, &job.Group, &job.VO, &job.Program, &job.Batch, &job.Schedd, &job.RequestThreads,
	} {
		*word = foreign.Word(*word)
	}
	job.AssignedGPUs = job.AssignedGPUs[:min(len(job.AssignedGPUs), mostAssigned)]
	return &job
}

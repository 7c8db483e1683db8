package agent

import (
	"strings"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
)

// jobsByIndex are the ids of each GPU's jobs, by the GPU's NVML index.
func jobsByIndex(p *plan.Plan, running []jobs.Job) map[int][]string {
	jobs := map[int][]string{}
	for _, r := range running {
		g, ok := p.Find(r.GPU)
		if ok && r.ID != "" && !strings.ContainsAny(r.ID, "\r\n") {
			jobs[g.Index] = append(jobs[g.Index], r.ID)
		}
	}
	return jobs
}

// mapJobs tells the site's dcgm-exporter which jobs are on which GPU, if it
// wants that. It returns what went wrong, to be told once.
func (a *Agent) mapJobs(told string) string {
	v := a.view.Load()
	if v.config.Usage.DCGMJobMapping == "" || !v.planned {
		return ""
	}
	err := usage.WriteJobMapping(v.config.Usage.DCGMJobMapping, jobsByIndex(&v.plan, a.jobs.Running()))
	if err == nil {
		return ""
	}
	if err.Error() != told {
		a.log.Error("dcgm-exporter is not told of jobs", "err", err)
	}
	return err.Error()
}

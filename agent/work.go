package agent

import (
	"cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// Work is what HTCondor tells of a job for its record; see record.Job.
type Work struct {
	Program, Batch, Schedd string
	// Docker: its processes are below docker's daemon, and what they use is not known.
	Docker    bool
	Requested record.Requested
}

// workOf is the job ad's word, by the hook that was given it. A job that asks for
// itself could say anything.
func workOf(c starter.Caller, job *api.Job) Work {
	if !c.Hook {
		return Work{}
	}
	return Work{Program: job.Program, Batch: job.Batch, Schedd: job.Schedd, Docker: job.Docker, Requested: record.Requested{
		GPUs: float(job.RequestGPUs), VRAMMiB: job.RequestVRAM, CPUs: float(job.RequestCPUs), MemoryMiB: job.RequestMemory,
	}}
}

// workIn is the startd's word: what the job asked for where the ad of its slot
// says so, else what a dynamic slot was made with for it.
func workIn(ad condor.Slot) Work {
	w := Work{Program: ad.Program, Batch: ad.Batch, Schedd: ad.Schedd, Docker: ad.Docker, Requested: record.Requested{
		GPUs: float(ad.RequestGPUs), VRAMMiB: ad.RequestVRAM, CPUs: float(ad.RequestCPUs), MemoryMiB: ad.RequestMemory,
	}}
	if ad.Type != "Dynamic" {
		return w
	}
	made := Work{Requested: record.Requested{GPUs: float(&ad.GPUs), VRAMMiB: ad.VRAM, CPUs: float(&ad.Cpus), MemoryMiB: &ad.Memory}}
	return w.or(made)
}

// or fills in what w does not know.
func (w Work) or(o Work) Work {
	return Work{cmp.Or(w.Program, o.Program), cmp.Or(w.Batch, o.Batch), cmp.Or(w.Schedd, o.Schedd), w.Docker || o.Docker, cmp.Or(w.Requested, o.Requested)}
}

func float(n *int64) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n)
	return &f
}

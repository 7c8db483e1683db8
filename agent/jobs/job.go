package jobs

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Job is a job on one GPU: it has a part of it, or the whole. A job on several GPUs has
// an entry for each.
type Job struct {
	Starter starter.Starter
	GPU     gpu.UUID
	// Device is the MIG device that the job got at a place of a layout; empty
	// elsewhere, and where it is not known.
	Device gpu.UUID
	// Budget is the slot's VRAM; on a whole GPU all of it.
	Budget gpu.MiB
	// Account is the one the job runs as.
	Account starter.Account
	// Owner and ID are HTCondor's words for messages and ads: the job ad's
	// Owner and "cluster.proc".
	Owner, ID string
	// Group and VO are the job's accounting group and virtual organisation. Unsaid is why
	// they are not known; empty if they are.
	Group, VO, Unsaid string
	Work              Work
	// EnforcedBy is what enforces Budget, one of the constants below; empty on an observed node.
	EnforcedBy string
	// Since is when the job was admitted, or began on an observed node.
	Since time.Time
	// Confirmed: HTCondor's own ads agree.
	Confirmed bool
	// Beside: the GPU was observed, and another job had it at the same time.
	Beside bool
	// Adopted: it ran before the agent started. Hold is set when it ended.
	Adopted bool
	Hold    api.Hold
}

// Key names an entry of the table: a job, by its starter, on a GPU.
type Key struct {
	Starter process.ID
	GPU     gpu.UUID
}

// KeyOf is the key of a starter's job on a GPU.
func KeyOf(s starter.Starter, u gpu.UUID) Key { return Key{s.ID, u} }

// What enforces a job's budget.
const (
	// WallCgroup: the driver holds all processes of the job to it together. It is
	// there when the limit was read back, so never yet at a job's admission.
	EnforcedByCgroup = "cgroup"
	// WallDaemon: the control daemon's own default limit, which a job's process
	// cannot lift.
	EnforcedByDaemon = "daemon"
	// WallWatch: the agent sums what the job's processes use, and HTCondor holds
	// the job that is over. It acts after the fact.
	EnforcedByWatch = "watch"
	// WallWhole: the job has the whole GPU, there is nothing to hold.
	EnforcedByWhole = "whole"
	// WallMIG: the job has a MIG device, whose memory, multiprocessors and faults
	// the hardware keeps apart.
	EnforcedByMIG = "mig"
	// WallNone: only the job's own environment, which it can change.
	EnforcedByNone = "none"
)

// AccountName names the job's account for people.
func (j Job) AccountName() string {
	switch {
	case j.Owner != "":
		return j.Owner
	case j.Account.Known:
		return fmt.Sprintf("uid %d", j.Account.UID)
	}
	return "the job of " + j.Starter.Slot
}

// Work is what HTCondor tells of a job for its record; see record.Job.
type Work struct {
	Program, Batch, Schedd string
	// Docker: its processes are below docker's daemon, and what they use is not known.
	Docker    bool
	Requested record.Requested
}

// WorkOf is the job ad's word, by the hook that was given it. A job that asks for
// itself could say anything, so its word is empty.
func WorkOf(c starter.Caller, job *api.Job) Work {
	if !c.Hook {
		return Work{}
	}
	return Work{
		Program: job.Program, Batch: job.Batch, Schedd: job.Schedd, Docker: job.Docker,
		Requested: record.Requested{
			GPUs: float(job.RequestGPUs), VRAMMiB: job.RequestVRAM,
			CPUs: float(job.RequestCPUs), MemoryMiB: job.RequestMemory,
		},
	}
}

// workIn is HTCondor's word: what the job asked for where the ad of its slot
// says so, else what a dynamic slot was made with for it.
func workIn(ad condor.Slot) Work {
	w := Work{
		Program: ad.Program, Batch: ad.Batch, Schedd: ad.Schedd, Docker: ad.Docker,
		Requested: record.Requested{
			GPUs: float(ad.RequestGPUs), VRAMMiB: ad.RequestVRAM,
			CPUs: float(ad.RequestCPUs), MemoryMiB: ad.RequestMemory,
		},
	}
	if ad.Type != "Dynamic" {
		return w
	}
	return w.or(Work{Requested: record.Requested{
		GPUs: float(&ad.GPUs), VRAMMiB: ad.VRAM, CPUs: float(&ad.Cpus), MemoryMiB: &ad.Memory,
	}})
}

// or fills in what w does not know.
func (w Work) or(o Work) Work {
	return Work{
		cmp.Or(w.Program, o.Program), cmp.Or(w.Batch, o.Batch), cmp.Or(w.Schedd, o.Schedd),
		w.Docker || o.Docker, cmp.Or(w.Requested, o.Requested),
	}
}

func float(n *int64) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n)
	return &f
}

package main

import (
	"io"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/hook"
	"github.com/gpuslot/gpuslot/condor"
)

// prepareTimeout outlasts a restart of the agent, during which systemd keeps
// the connection waiting.
const prepareTimeout = 20 * time.Second

// prepare is the PREPARE_JOB hook. Whatever happens it answers in words and
// with status 0: any other status holds the job, also when the node is at fault.
// It prints nothing of its own environment, which holds HTCondor's session keys.
func (p program) prepare(args []string) int {
	o, err := p.parse("prepare", args, prepareTimeout)
	if err != nil {
		return usage
	}
	ad, err := io.ReadAll(io.LimitReader(p.stdin, condor.MaxJobAd+1))
	said := api.Hook{Ad: string(ad), GPUs: p.getenv(assignedGPUs), Args: o.args}
	answer := hook.Answer(said, o.askFor)
	if err != nil {
		answer = hook.Unreadable(err)
	}
	if _, err := p.stdout.Write(answer); err != nil {
		return 1 // without its answer the job must not start
	}
	return 0
}

// assignedGPUs is the variable in which the starter lists the slot's GPUs. HTCondor sets it
// after the job's own variables.
const assignedGPUs = "_CONDOR_AssignedGPUs"

// askFor asks the agent about a job.
func (o options) askFor(job *api.Job) (api.Reply, error) {
	return o.call(api.Request{Op: api.OpPrepare, Job: job})
}

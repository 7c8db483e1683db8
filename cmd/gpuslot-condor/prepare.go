package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/condor/classad"
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
	if _, err := p.stdout.Write(p.admit(o).Print()); err != nil {
		return 1 // without its answer the job must not start
	}
	return 0
}

// admit asks the agent about the job on standard input.
func (p program) admit(o options) condor.HookReply {
	job, err := condor.ReadJob(p.stdin)
	if err != nil {
		return refuse(api.CodeBadJob, err.Error())
	}
	env, err := job.Environment()
	if err != nil {
		return refuse(api.CodeBadJob, err.Error())
	}
	if len(job.Outside) > 0 {
		return refuse(api.CodeBadJob, fmt.Sprintf("HTCondor would run programs of this job outside its cgroup, "+
			"where no limit holds (%s): run them from the job's own script",
			strings.Join(job.Outside, ", ")))
	}
	if job.OddTenant != "" {
		return refuse(api.CodeBadJob, job.OddTenant+": use the name that the site gave it")
	}
	grant, refusal := o.ask(p.request(job))
	if refusal != nil {
		return refuse(refusal.Code, refusal.Reason)
	}
	env = env.With(grant.Environment, grant.Defaults)
	if bind := grant.Environment[condor.BindVariable]; bind != "" {
		set := condor.Binds(o.ofJob(env), bind)
		for _, name := range slices.Sorted(maps.Keys(set)) {
			env.Set(name, set[name])
		}
	}
	return condor.HookReply{Environment: env}
}

// ofJob is a variable as the job would have it without us: its own or, if it
// has none, the site's for every job (STARTER_JOB_ENVIRONMENT), which HTCondor
// hands over in the hook's arguments because its environment has it not.
func (o options) ofJob(env condor.Environment) func(string) string {
	site := siteEnvironment(o.args)
	return func(name string) string {
		if value, ok := env.Lookup(name); ok {
			return value
		}
		value, _ := site.Lookup(name)
		return value
	}
}

// siteEnvironment puts together what HTCondor took apart at blanks, quotes and
// all (25.14.1). What is no environment sets nothing, as in the starter.
func siteEnvironment(args []string) condor.Environment {
	text := strings.Join(args, " ")
	if v2, ok := strings.CutPrefix(text, `"`); ok {
		env, _ := condor.ParseEnvironment(strings.ReplaceAll(strings.TrimSuffix(v2, `"`), `""`, `"`))
		return env
	}
	env, _ := condor.ParseEnvironmentV1(text, "")
	return env
}

func refuse(code int, reason string) condor.HookReply {
	return condor.HookReply{Code: code, Message: reason}
}

// request is the job in the agent's words. The slot's GPUs come from the
// environment: HTCondor sets them there after the job's own variables.
func (p program) request(job condor.Job) *api.Job {
	return &api.Job{
		ID:              job.ID,
		Owner:           job.Owner,
		AssignedGPUs:    classad.SplitList(p.getenv(assignedGPUs)),
		ProvisionedVRAM: job.ProvisionedVRAM,
		RequestGPUs:     job.RequestGPUs,
		RequestVRAM:     job.RequestVRAM,
		Group:           job.Group,
		VO:              job.VO,
		RequestThreads:  job.RequestThreads,
		Program:         job.Program,
		Batch:           job.Batch,
		Schedd:          job.Schedd,
		RequestCPUs:     job.RequestCPUs,
		RequestMemory:   job.RequestMemory,
		Docker:          job.Docker,
	}
}

// assignedGPUs is the variable in which the starter lists the slot's GPUs.
const assignedGPUs = "_CONDOR_AssignedGPUs"

// ask returns the agent's grant or a refusal, never both and never none: an
// agent that does not answer, or not sensibly, is a requeue.
func (o options) ask(job *api.Job) (api.Grant, *api.Refusal) {
	reply, err := o.call(api.Request{Op: api.OpPrepare, Job: job})
	switch {
	case err != nil:
		return api.Grant{}, api.Refuse(api.CodeNoAgent, err.Error())
	case reply.Refusal != nil && reply.Refusal.Code > 0:
		return api.Grant{}, reply.Refusal
	case reply.Refusal == nil && reply.Grant != nil:
		return *reply.Grant, nil
	}
	return api.Grant{}, api.Refuse(api.CodeNoAgent,
		"gpuslotd answered without a decision; look at: journalctl -u gpuslotd")
}

// Package hook is what HTCondor's PREPARE_JOB hook says: a job ad in, the job's environment or a
// refusal out. It is pure; who decides on the job is asked by a function.
//
// Start at Answer. gpuslotd answers gpuslot-start with it, and gpuslot-condor prepare itself.
package hook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/condor/classad"
)

// mostBinds is how many entries of each of condor.BindVariables are read.
const mostBinds = 1000

// Answer is what the hook prints about a job. It asks about the job only if its ad can be read
// and the job may be admitted at all.
func Answer(said api.Hook, ask func(*api.Job) (api.Reply, error)) []byte {
	return answer(said, ask).Print()
}

func answer(said api.Hook, ask func(*api.Job) (api.Reply, error)) condor.HookReply {
	job, err := condor.ReadJob(strings.NewReader(said.Ad))
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
	lookup := ofJob(env, said.Args)
	for _, name := range condor.BindVariables {
		if n := strings.Count(lookup(name), ",") + 1; n > mostBinds {
			return refuse(api.CodeBadJob, fmt.Sprintf("%s has %d entries, and at most %d are read: bind fewer directories",
				name, n, mostBinds))
		}
	}
	if job.OddTenant != "" {
		return refuse(api.CodeBadJob, job.OddTenant+": use the name that the site gave it")
	}
	grant, refusal := Decision(ask(Job(job, said.GPUs)))
	if refusal != nil {
		return refuse(refusal.Code, refusal.Reason)
	}
	env = env.With(grant.Environment, grant.Defaults)
	if bind := grant.Environment[condor.BindVariable]; bind != "" {
		set := condor.Binds(ofJob(env, said.Args), bind)
		for _, name := range slices.Sorted(maps.Keys(set)) {
			env.Set(name, set[name])
		}
	}
	return condor.HookReply{Environment: env}
}

// Decision is the grant or the refusal in a reply, never both and never none: an
// agent that does not answer, or not sensibly, is a requeue.
func Decision(reply api.Reply, err error) (api.Grant, *api.Refusal) {
	switch {
	case err != nil:
		return api.Grant{}, api.Refuse(api.CodeNoAgent, err.Error())
	case reply.Error != "":
		return api.Grant{}, api.Refuse(api.CodeNoAgent, "gpuslotd refuses the request: "+reply.Error)
	case reply.Refusal != nil && reply.Refusal.Code > 0:
		return api.Grant{}, reply.Refusal
	case reply.Refusal == nil && reply.Grant != nil:
		return *reply.Grant, nil
	}
	return api.Grant{}, api.Refuse(api.CodeNoAgent,
		"gpuslotd answered without a decision; look at: journalctl -u gpuslotd")
}

// Unreadable is what the hook prints of a job ad that it cannot read.
func Unreadable(err error) []byte {
	return refuse(api.CodeBadJob, fmt.Sprintf("read the job ad: %v", err)).Print()
}

func refuse(code int, reason string) condor.HookReply {
	return condor.HookReply{Code: code, Message: reason}
}

// ofJob is a variable as the job would have it without us: its own or, if it
// has none, the site's for every job (STARTER_JOB_ENVIRONMENT), which HTCondor
// hands over in the hook's arguments because its environment has it not.
func ofJob(env condor.Environment, args []string) func(string) string {
	site := siteEnvironment(args)
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

// Job is the job in the agent's words. GPUs are those of the slot, as HTCondor lists them.
func Job(job condor.Job, gpus string) *api.Job {
	return &api.Job{
		ID:              job.ID,
		Owner:           job.Owner,
		AssignedGPUs:    classad.SplitList(gpus),
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

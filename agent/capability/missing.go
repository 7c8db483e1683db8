package capability

import (
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/plan"
)

// staticPartitions is the name of that capability.
const staticPartitions = "static-partitions"

// Missing returns a sentence for each enforcement that is not there: what that means, and
// what would bring it. A capability that the plan does not use has one, too.
func (c Set) Missing(p plan.Plan) []string {
	var out []string
	if slices.ContainsFunc(p.GPUs, plan.GPU.NeedsLimits) && !slices.ContainsFunc(p.GPUs, plan.GPU.MPS) {
		return nil // no budget rests on a control daemon
	}
	if !c.Tried {
		if c.Err != nil {
			out = append(out, fmt.Sprintf("What the control daemon can do is not known, so no budget counts as "+
				"held by it: %v.", c.Err))
		}
		return out
	}
	for _, a := range c.All() {
		text := missingText[a.Name]
		if a.Has {
			text = unusedText[a.Name]
		}
		used := a.Name == staticPartitions && slices.ContainsFunc(p.GPUs, plan.GPU.Partitioned)
		if a.Known && text != "" && !used {
			out = append(out, text)
		}
	}
	if !c.MPS.PrivilegeChecks.Known {
		out = append(out, fmt.Sprintf("Whether other accounts may change the control daemons' limits is not known (%s), "+
			"so no budget counts as held by the daemon.", c.MPS.PrivilegeChecks.How))
	}
	return out
}

// missingText are sentences for operators, by capability.
var missingText = map[string]string{
	"server-status": fmt.Sprintf("The control daemon does not report the state of its MPS servers. A fault of one is "+
		"seen only in its log and by its clients. Driver %d or newer reports it.", plan.PrivilegeChecks.Branch),
	"privilege-checks": fmt.Sprintf("Any account that reaches a control daemon may change its limits, so the "+
		"enforcement is \"watch\", never \"daemon\". Driver %d or newer checks which account asks.",
		plan.PrivilegeChecks.Branch),
	"multi-user": fmt.Sprintf("An MPS server serves one account at a time, so accounts take turns on a GPU. Driver "+
		"%d or newer can serve several at once (tenancy = \"multi-user\").", plan.MultiUser.Branch),
	staticPartitions: fmt.Sprintf("No multiprocessors can be reserved for a job: a thread percentage limits that job, "+
		"not its neighbours. Static SM partitions need driver R%d or newer.", plan.Partitions.Branch),
	cgroupLimits: fmt.Sprintf("MPS limits each process. The agent watches the sum of a job's processes, and acts after "+
		"it is over its budget. Limits of cgroups need driver R%d or newer, and cgroup v2 with the controller dmem "+
		"(Linux 6.14) or misc.", plan.CgroupLimits.Branch),
}

// unusedText are sentences about what is there and not used by this gpuslot.
var unusedText = map[string]string{
	staticPartitions: "This driver can reserve multiprocessors for a job, and the configuration does not. A thread " +
		"percentage limits a job, not its neighbours. threads = \"partitioned\" gives each share a static SM " +
		"partition.",
}

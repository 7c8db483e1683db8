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
	"server-status": fmt.Sprintf("The control daemon does not report the state of its MPS servers, so a fault of one "+
		"is seen only in its log and by its clients: driver %d or newer reports it.", plan.PrivilegeChecks.Branch),
	"privilege-checks": fmt.Sprintf("Any account that reaches a control daemon may change its limits, so the "+
		"enforcement is \"watch\", never "+
		"\"daemon\": driver %d or newer checks who asks.", plan.PrivilegeChecks.Branch),
	"multi-user": fmt.Sprintf("An MPS server serves one account at a time, so accounts take turns on a GPU (tenancy "+
		"\"one-at-a-time\" or \"common:…\"): driver %d or newer can serve several at once "+
		"(\"multi-user\").", plan.MultiUser.Branch),
	staticPartitions: fmt.Sprintf("No multiprocessors can be reserved for a job: a thread percentage is a cap that "+
		"its neighbours do not have to respect: static SM partitions need driver R%d or newer.", plan.Partitions.Branch),
	cgroupLimits: fmt.Sprintf("A job of several processes is held to its budget only after the fact, by the watch: "+
		"limits of cgroups need driver R%d or newer on cgroup v2 with the controller dmem (Linux 6.14) or "+
		"misc.", plan.CgroupLimits.Branch),
}

// unusedText are sentences about what is there and not used by this gpuslot.
var unusedText = map[string]string{
	staticPartitions: "This driver can reserve multiprocessors for a job, and the configuration does not: a thread " +
		"percentage is a cap that a job's neighbours do not have to respect: threads = \"partitioned\" gives each share a " +
		"static SM partition.",
}

package condor

import (
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// outsideCgroup are the job attributes by which HTCondor runs programs of the user
// outside the job's cgroup and without the job wrapper, where no limit holds and
// nothing is accounted: scripts before and after the job, a tool daemon, file
// transfer plugins.
var outsideCgroup = []string{"PostCmd", "PreCmd", "ToolDaemonCmd", "TransferPlugins"}

// insideMacro holds the part of START that keeps such jobs away.
const insideMacro = "GPUSLOT_IN_CGROUP"

// inside sets that part of START. An attribute may be an expression that is undefined
// here and the name of a program where the starter evaluates it: the hook looks again.
func (t *text) inside(n Node) {
	if len(n.Devices) == 0 {
		return
	}
	var parts []string
	for _, name := range outsideCgroup {
		parts = append(parts, "TARGET."+name+" is undefined")
	}
	t.comment(
		"HTCondor runs these programs of a job outside the job's cgroup, where no limit holds: such jobs do not match.",
	)
	t.set(insideMacro, "%s", strings.Join(parts, " && "))
}

// outside are those attributes in a job's ad. Their text counts, not their value.
func outside(ad classad.Ad) []string {
	var names []string
	for _, name := range outsideCgroup {
		if text, ok := ad.Expr(name); ok && !strings.EqualFold(text, "undefined") {
			names = append(names, name)
		}
	}
	return names
}

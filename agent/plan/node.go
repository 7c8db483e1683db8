package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// noteNode says what is true of the finished plan and an operator should know.
func noteNode(p Plan, unmatched []string, here []gpu.GPU, n *notes) {
	present := len(here)
	if present == 0 {
		n.warn("", "the node has no GPUs, so it offers none; if it should, see whether nvidia-smi lists them")
	}
	if len(p.Absent) > 0 {
		n.warn("", "%s configured, but not in this node (%s): lost, swapped, or of another node; here: "+
			"%s", counted(len(p.Absent), "GPU is", "GPUs are"),
			joinUUIDs(p.Absent), uuidsOf(here))
	}
	for _, table := range unmatched {
		what := uuidsOf(here)
		if !isGPUTable(table) {
			what = productsOf(here)
		}
		n.warn("", "%s matches no GPU of this node; here: %s", table, what)
	}
	if divided := len(p.MIG); divided > 0 && divided < present && Mixed.Lacks(p.Driver) {
		n.warn("", "GPUs in MIG mode stand beside others, and before driver %d one program sees a single MIG device or "+
			"the other GPUs, never both: jobs are not harmed, since each gets one kind, but tools may miss GPUs", Mixed.Branch)
	}
	for _, g := range p.GPUs {
		if !g.Shared() {
			continue
		}
		if g.Shares > g.Resources.CPUs {
			n.warn(g.UUID, "%s for %d shares: the CPUs run out before the "+
				"shares", counted(g.Resources.CPUs, "CPU", "CPUs"), g.Shares)
		}
		if g.MPS() && PrivilegeChecks.Lacks(p.Driver) {
			n.warn(g.UUID, "the control daemon of driver %s lets any local user change its defaults, so its memory limit "+
				"does not hold: use driver %d or newer", p.Driver, PrivilegeChecks.Branch)
		}
	}
}

// uuidsOf are the beginnings of the GPUs' UUIDs.
func uuidsOf(gpus []gpu.GPU) string {
	const enough = len("GPU-12345678")
	names := make([]string, len(gpus))
	for i, g := range gpus {
		names[i] = string(g.UUID[:min(enough, len(g.UUID))])
	}
	return listed(names)
}

// productsOf are the GPUs' products, each once.
func productsOf(gpus []gpu.GPU) string {
	var names []string
	for _, g := range gpus {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	return listed(names)
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// counted prints a number with its noun: "1 CPU", "2 CPUs".
func counted(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Budget is the VRAM that a job asking for want gets on the GPU: at least the
// minimum, a multiple of the quantum. It does not fit above LargestRequest.
func (r RequestVRAM) Budget(want gpu.MiB) gpu.MiB {
	return max(want.Ceil(r.Quantum), r.Minimum)
}

package plan

import (
	"fmt"
	"strings"
)

// Feature is what a driver of some branch brings.
type Feature struct {
	// Name is what gpuslot uses of it, as Markdown.
	Name string
	// Branch is the first driver branch that has it, such as 535.
	Branch int
	// Without is what follows where it is missing.
	Without string
	// Source is where Branch is known from.
	Source string
}

// The features that plans depend on.
var (
	// Sharing is MPS as gpuslot needs it: memory limits (R495) and an orderly end of
	// one client.
	Sharing = Feature{"sharing a GPU (memory limits and terminate_client)", 535,
		"GPUs are whole, none is shared", "the control daemon of 535; NVIDIA MPS documentation"}
	// PrivilegeChecks keep other accounts from a control daemon's limits.
	PrivilegeChecks = Feature{"privilege checks of the control daemon, get_server_status", 550,
		"any account that reaches a control daemon may change its limits", "the control daemons of 535, 550 and 555"}
	// MultiUser is one MPS server for several accounts.
	MultiUser = Feature{"`tenancy = \"multi-user\"`", 555,
		"an error of the plan", "the control daemons of 550 and 555"}
	// Mixed is MIG devices and other GPUs in one CUDA program.
	Mixed = Feature{"one program sees MIG devices and other GPUs", 570,
		"a warning where a node has both MIG and other GPUs", "NVIDIA MIG User Guide, Device Names"}
	// Partitions are static SM partitions.
	Partitions = Feature{"`threads = \"partitioned\"`", 590,
		"an error of the plan", "NVIDIA MPS documentation, release 590"}
	// CgroupLimits are the driver's VRAM limits on cgroups.
	CgroupLimits = Feature{"the driver's VRAM limits on cgroups", 615,
		"a job of several processes is held to its budget after the fact; `mode = \"time-slice\"` is an error of the plan",
		"NVIDIA MPS documentation, release 615"}
)

// Features are all of them, the oldest driver first.
func Features() []Feature {
	return []Feature{Sharing, PrivilegeChecks, MultiUser, Mixed, Partitions, CgroupLimits}
}

// Lacks reports whether a driver ("550.163.01") is too old for the feature. A driver
// whose version is not known is tried out.
func (f Feature) Lacks(driver string) bool {
	branch := driverMajor(driver)
	return 0 < branch && branch < f.Branch
}

// needs says which driver the feature needs and which one the node has.
func (f Feature) needs(driver string) string {
	name, _, _ := strings.Cut(f.Name, " (")
	name = strings.Trim(name, "`")
	return fmt.Sprintf("%s needs driver %d or newer, and this node has %s", name, f.Branch, driver)
}

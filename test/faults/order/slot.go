package order

import (
	"fmt"
	"path/filepath"
	"strings"
)

// machine ends the slots' names.
const machine = "wn1.example.org"

// Slot is a dynamic slot with its job, as HTCondor tells of them.
type Slot struct {
	// Name without the machine, such as slot1_2.
	Name string
	// Job is its id, such as 1.2.
	Job   string
	Owner string
	UID   uint32
	// GPU is that of its UUID, Budget the slot's VRAM in MiB.
	GPU    string
	Budget int64
	// Dir is the job's directory.
	Dir string
}

// Ad is what condor_status -json tells of it.
func (s Slot) Ad() string {
	return fmt.Sprintf(`{"Name": "%s@%s", "SlotType": "Dynamic", "State": "Claimed", "JobId": %q, `+
		`"RemoteOwner": "%s@example.org", "AssignedGPUs": %q, "VRAM": %d, "GPUs": 1, "Cpus": 1}`,
		s.Name, machine, s.Job, s.Owner, s.GPU, s.Budget)
}

func (s Slot) jobAd() string {
	cluster, proc, _ := strings.Cut(s.Job, ".")
	return fmt.Sprintf("ClusterId = %s\nProcId = %s\nOwner = %q\nRequestGPUs = 1\nRequestVRAM = %d\nGpusProvisioned = 1\nVramProvisioned = %d\nEnvironment = \"A=1\"\n",
		cluster, proc, s.Owner, s.Budget, s.Budget)
}

// Order is the one for its starter, without the command: gpuslot-condor, found
// at the path program, asks the agent behind the socket.
func (s Slot) Order(program, socket string) Order {
	env := []string{"_CONDOR_AssignedGPUs=" + s.GPU, "_CONDOR_JOB_AD=" + s.Dir + "/.job.ad", "_CONDOR_MACHINE_AD=" + s.Dir + "/.machine.ad"}
	return Order{
		Hook:    []string{program, "prepare", "--socket", socket},
		HookEnv: append([]string{"PATH=/usr/bin:/bin", "_CONDOR_SLOT=" + s.Name, "_CONDOR_SCRATCH_DIR=" + s.Dir}, env...),
		JobAd:   s.jobAd(),
		UID:     s.UID,
		Env:     env,
		Output:  filepath.Join(s.Dir, "out"),
	}
}

// Cgroup is its processes', as HTCondor names it, below a node's root; empty
// where the node has none.
func (s Slot) Cgroup(root string) string {
	if root == "" {
		return ""
	}
	return filepath.Join(root, "htcondor", "condor_var_lib_condor_execute_"+s.Name+"@"+machine)
}

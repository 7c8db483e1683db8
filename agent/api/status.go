package api

import (
	"time"
)

// Status is the agent's whole state for "gpuslot status".
type Status struct {
	Version     string `json:"version"`
	Host        string `json:"host"`
	Driver      string `json:"driver,omitempty"`
	HTCondor    string `json:"htcondor,omitempty"`
	ConfigFile  string `json:"config_file"`
	ConfigError string `json:"config_error,omitempty"`
	// Partial: another account than root asked. Names of other accounts, their jobs and
	// sentences that can name them are left out.
	Partial bool `json:"partial,omitempty"`
	// Observe: gpuslot changes nothing on the node, and jobs have its GPUs by
	// HTCondor's own rules.
	Observe bool `json:"observe,omitempty"`
	// Node is nil for a node that serves.
	Node *NodeStatus `json:"node,omitempty"`
	// PlanAge is when the plan in force was applied.
	PlanApplied time.Time `json:"plan_applied"`
	// MPS lists what the installed control daemon can do and what it lacks,
	// MissingEnforcement what is missing for lack of it; complete sentences.
	MPS                []Capability `json:"mps,omitempty"`
	MissingEnforcement []string     `json:"missing_walls,omitempty"`
	Warnings           []string     `json:"warnings,omitempty"`
	// Errors keep jobs from the GPUs, or let them past gpuslot; complete sentences.
	Errors []string    `json:"errors,omitempty"`
	Absent []string    `json:"absent,omitempty"`
	GPUs   []StatusGPU `json:"gpus"`
	// JobTable has each job with each GPU or MIG device that it has, also those that the plan lacks by now. It is nil in
	// a partial status, and of an older gpuslotd. UnknownJob says which job's GPU is not known; empty if there is none.
	JobTable   []StatusEntry `json:"job_table,omitzero"`
	UnknownJob string        `json:"unknown_job,omitempty"`
	// Repartition tells of GPUs whose MIG layouts follow the work that waits.
	Repartition []StatusRepartition `json:"repartition,omitempty"`
	// Startds are HTCondor's that answered, Changes what they do not run yet of
	// the plan.
	Startds []StatusStartd `json:"startds,omitempty"`
	Changes []Change       `json:"changes,omitempty"`
}

// StatusEntry is one entry of the job table. GPU is the UUID of a GPU, a MIG device or the place of one, which then has
// the Device, if that is known.
type StatusEntry struct {
	Slot   string `json:"slot"`
	GPU    string `json:"gpu"`
	Device string `json:"device,omitempty"`
}

// StatusStartd is one condor_startd as its slots tell.
type StatusStartd struct {
	// Name is its local name; empty for HTCondor's own. Daemon is its name in
	// DAEMON_LIST.
	Name   string `json:"name,omitempty"`
	Daemon string `json:"daemon"`
	// Plans and Configs are the GPUSlotPlan and GPUSlotConfig of its slots.
	Plans   []string `json:"plans"`
	Configs []string `json:"configs"`
	// Layout are its partitionable slots, in words.
	Layout []string `json:"layout"`
	// GPUs are the ids that it offers or has given out.
	GPUs []string    `json:"gpus,omitempty"`
	Jobs []ChangeJob `json:"jobs,omitempty"`
}

// ChangeJob is a job, with or without GPUs, that a restart of its startd concerns.
type ChangeJob struct {
	Slot  string `json:"slot"`
	ID    string `json:"id"`
	Owner string `json:"owner,omitempty"`
}

// What a startd needs before it runs as planned. Measured on 25.14.1: slot
// types, CPUs, memory and resources are read at a startd's start only, START,
// policy, cron jobs and attributes at condor_reconfig too, which also starts
// daemons that are new in DAEMON_LIST.
const (
	NeedRestart  = "restart"
	NeedReconfig = "reconfig"
	NeedStart    = "start"
	NeedStop     = "stop"
)

// Change is what one condor_startd does not run yet of the plan.
type Change struct {
	// Daemon is the startd's name in DAEMON_LIST, Startd its local name.
	Daemon string `json:"daemon"`
	Startd string `json:"startd,omitempty"`
	// Need is NeedRestart, NeedReconfig, NeedStart or NeedStop.
	Need string `json:"need"`
	// Plan is the one that it is to run with.
	Plan string `json:"plan"`
	// GPUs and Jobs are those that a restart concerns.
	GPUs []string    `json:"gpus,omitempty"`
	Jobs []ChangeJob `json:"jobs,omitempty"`
	// Blocked is another daemon that has to change first, or a setting of the site's.
	Blocked string `json:"blocked_by,omitempty"`
	// Says is all that as a sentence.
	Says string `json:"says"`
}

// StatusRepartition is what was decided last of the GPUs with one setting of
// repartition.
type StatusRepartition struct {
	// Setting is "suggest" or "auto".
	Setting string `json:"setting"`
	// At is when, zero before the first time. Error is why it could not be.
	At    time.Time `json:"at,omitzero"`
	Error string    `json:"error,omitempty"`
	// Told is when an access point last told of its jobs, Nodes how many nodes
	// share them.
	Told  time.Time `json:"told,omitzero"`
	Nodes int       `json:"nodes,omitempty"`
	// Demand is what waits in the pool, by the smallest profile that serves it here.
	Demand []StatusDemand `json:"demand,omitempty"`
	// Other is the number of idle jobs that no place of these GPUs serves, or whose
	// require_gpus is not understood.
	Other int `json:"other_jobs,omitempty"`
	// Unserved are those of them for whose VRAM there is a place, but none with a slot
	// that has their CPUs and memory.
	Unserved []StatusUnserved `json:"unserved,omitempty"`
	// Act is "nothing", "suggest", "reserve" or "change", Why a sentence, Steps what
	// is or would be done, Reserved the places kept free.
	Act      string   `json:"act,omitempty"`
	Why      string   `json:"why,omitempty"`
	Steps    []string `json:"steps,omitempty"`
	Reserved []string `json:"reserved,omitempty"`
}

// StatusUnserved are idle jobs that ask for more of the host than any slot has.
type StatusUnserved struct {
	Jobs int `json:"jobs"`
	// VRAMMiB, CPUs and MemoryMiB are what each asks for; 0 if that is not known.
	VRAMMiB   int64 `json:"vram_mib"`
	CPUs      int   `json:"cpus"`
	MemoryMiB int64 `json:"memory_mib"`
	// Why says it as a sentence, with what the largest slot has.
	Why string `json:"why"`
}

// StatusDemand are jobs that wait for one profile.
type StatusDemand struct {
	Profile string `json:"profile"`
	// Jobs in the pool, Here this node's part of them.
	Jobs int `json:"jobs"`
	Here int `json:"here"`
	// WaitsSeconds is how long the first of them has been idle.
	WaitsSeconds int64 `json:"waits_seconds"`
}

// Capability is one thing that a control daemon, driver and kernel can do or
// not; Has is nil where that is not known.
type Capability struct {
	Name string `json:"name"`
	Has  *bool  `json:"has,omitempty"`
	// How says by what it was found.
	How string `json:"how,omitempty"`
}

// StatusGPU is one GPU of a Status.
type StatusGPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Name  string `json:"name"`
	// Place is where a MIG device of a wanted layout belongs ("3g.20gb@4"), whose
	// own UUID is UUID, and Device the MIG device that is there now.
	Place  string `json:"place,omitempty"`
	Device string `json:"device,omitempty"`
	Mode   string `json:"mode"`
	Shares int    `json:"shares"`
	// PoolMiB and UsedMiB: the pool, and the sum of the running jobs' budgets.
	PoolMiB int64 `json:"vram_pool_mib"`
	UsedMiB int64 `json:"vram_budgeted_mib"`
	// LimitMiB is the control daemon's default limit as set; 0 if it has none.
	LimitMiB int64 `json:"daemon_limit_mib,omitempty"`
	// LimitProof says how exactly it was read back.
	LimitReadBack string `json:"daemon_limit_proof,omitempty"`
	Accept        bool   `json:"accept"`
	Reason        string `json:"reason,omitempty"`
	// Holds are those that close it.
	Holds  []GPUHold `json:"holds,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	// EnforcedBy is what holds the weakest of the budgets: "daemon", "none", …
	EnforcedBy string `json:"wall"`
	// ComputeMode tells the mode in force or why it is not as configured.
	ComputeMode string `json:"compute_mode,omitempty"`
	// DaemonPID is the control daemon's; 0 if none runs.
	DaemonPID int `json:"daemon_pid,omitempty"`
	// Server says what is known of the MPS server; Servers are those listed.
	Server  string         `json:"server,omitempty"`
	Servers []StatusServer `json:"servers,omitempty"`
	// Verified is the last verification since the boot; nil if there is none.
	Verified *Verification `json:"verified,omitempty"`
	// UseMiB is the VRAM in use by NVML's word; nil if unknown.
	UseMiB *int64 `json:"vram_used_mib,omitempty"`
	// UnlistedMiB is the part of it that NVML lists with no process, 0 where that is no more
	// than tolerated; Unlisted says it as a sentence.
	UnlistedMiB int64  `json:"vram_unlisted_mib,omitempty"`
	Unlisted    string `json:"unlisted,omitempty"`
	// SM is the share of its multiprocessors that were busy in the last sample,
	// 0 to 1, Watts what it draws; nil if unknown.
	SM    *float64 `json:"sm_activity,omitempty"`
	Watts *float64 `json:"power_watts,omitempty"`
	// Strangers are processes on a shared GPU that are no MPS clients, or no job's, or of which that is not known.
	Strangers []StatusProcess `json:"strangers,omitempty"`
	// ProvedAt is when the daemon last proved its health.
	ProvedAt time.Time   `json:"proved_at,omitzero"`
	Jobs     []StatusJob `json:"jobs,omitempty"`
}

// StatusServer is one MPS server.
type StatusServer struct {
	PID int `json:"pid"`
	// UID is the account it serves; nil if unknown.
	UID *uint32 `json:"uid,omitempty"`
	// Status is NVIDIA's word, such as ACTIVE or FAULT; empty if the control
	// daemon has no such command (535).
	Status  string `json:"status,omitempty"`
	Clients int    `json:"clients"`
}

// StatusProcess is a process on a GPU.
type StatusProcess struct {
	PID  int    `json:"pid"`
	Slot string `json:"slot,omitempty"`
	// MPSClient: it is one, and of no job.
	MPSClient bool `json:"mps_client,omitempty"`
	// Unknown: it may be of any job or of none, because the kernel has not said yet where it runs.
	Unknown bool `json:"unknown,omitempty"`
	// VRAMMiB is nil if unknown.
	VRAMMiB *int64 `json:"vram_mib,omitempty"`
}

// StatusJob is one running job.
type StatusJob struct {
	Slot      string `json:"slot"`
	ID        string `json:"id"`
	Account   string `json:"account"`
	BudgetMiB int64  `json:"budget_mib"`
	// UseMiB is the VRAM of all its processes, Processes their number on the
	// GPU; nil if unknown.
	UseMiB    *int64 `json:"vram_used_mib,omitempty"`
	Processes *int   `json:"gpu_processes,omitempty"`
	// SMMin, SM and SMMax are the bounds and the estimate of its share of the
	// GPU's multiprocessors in the last sample, 0 to 1; nil if unknown.
	SMMin *float64 `json:"sm_min,omitempty"`
	SM    *float64 `json:"sm,omitempty"`
	SMMax *float64 `json:"sm_max,omitempty"`
	// Joules is the energy apportioned to it since it started; nil if unknown.
	Joules *float64 `json:"energy_joules,omitempty"`
	// Hold is why HTCondor is to hold it; empty if it is not.
	Hold       string `json:"hold,omitempty"`
	EnforcedBy string `json:"wall"`
	// SMs is how many multiprocessors are its own, in a static SM partition; nil
	// if none are, or unknown.
	SMs   *int      `json:"own_multiprocessors,omitempty"`
	Since time.Time `json:"since"`
	// Confirmed: the startd's own ads agree with what the hook told.
	Confirmed bool `json:"confirmed"`
}

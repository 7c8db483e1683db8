// Package api owns the conversation on the agent's unix socket: one JSON
// object in a line as request, one as reply, then the connection closes. It
// holds the types and a client that HTCondor's side can start in a
// millisecond; who the caller is, the server reads from the kernel, never from
// a request. Start at Call.
package api

import "time"

// Version is the protocol's version; the server refuses another one with a
// sentence that names both.
const Version = 1

// DefaultSocket is where systemd listens for the agent.
const DefaultSocket = "/run/gpuslot/agent.sock"

// MaxRequest bounds a request in bytes; longer ones are refused unread.
const MaxRequest = 256 << 10

// Op is what a caller wants.
type Op string

// The operations, and who may call them.
const (
	// OpPrepare admits a job: a hook below a condor_starter, or the job itself (wrap).
	OpPrepare Op = "prepare"
	// OpMonitor asks which GPUs accept jobs: root and the account of HTCondor's daemons.
	OpMonitor Op = "monitor"
	// OpStatus asks for the whole state: root and the agent's own account.
	OpStatus Op = "status"
	// OpEnd lets the MPS clients of the caller's own slot leave before a signal
	// ends them: a job's supervisor.
	OpEnd Op = "end"
	// OpVerify runs a CUDA client through the way of a job on one GPU, or on all
	// that are idle: root and the agent's own account.
	OpVerify Op = "verify"
	// OpRestart starts a GPU's control daemon anew: root and the agent's own account.
	OpRestart Op = "restart"
	// OpClose holds GPUs closed for an owner, and OpOpen lifts an owner's holds, or
	// with Force everybody's: root and the agent's own account.
	OpClose Op = "close"
	OpOpen  Op = "open"
	// OpNode takes the whole node out of service and back: root and the agent's own
	// account; VerbStatus everybody.
	OpNode Op = "node"
	// OpUsage asks what the running jobs used up to now: who may call OpMonitor.
	OpUsage Op = "usage"
	// OpHere asks what the caller's own job holds: any process of a job.
	OpHere Op = "here"
)

// Request is one request.
type Request struct {
	Version int `json:"v"`
	Op      Op  `json:"op"`
	// Job is what the hook or the wrapper was told; for OpPrepare.
	Job *Job `json:"job,omitempty"`
	// GPU is a UUID, an index or the beginning of a UUID; for OpVerify, where
	// empty means every idle one, OpRestart, OpClose and OpOpen, which also take a
	// PCI bus id, and "all".
	GPU string `json:"gpu,omitempty"`
	// Owner closes or opens, "operator" if it is empty; Reason says why a GPU is
	// closed.
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Verb is what OpNode does.
	Verb string `json:"verb,omitempty"`
	// Force lets OpRestart end the jobs' MPS clients, and OpOpen open a GPU
	// whose reason still holds; VerbQuiesce goes on although it is not known
	// whether jobs run, and VerbResume opens without verification.
	Force bool `json:"force,omitempty"`
}

// Job is what HTCondor told the hook of the job and its slot. The agent
// answers by it, but enforces only what the startd itself confirms.
type Job struct {
	// ID is "cluster.proc"; for messages.
	ID string `json:"id,omitempty"`
	// Owner is the job ad's Owner.
	Owner string `json:"owner,omitempty"`
	// AssignedGPUs are the ids that the startd bound to the slot, in its order.
	AssignedGPUs []string `json:"assigned_gpus,omitempty"`
	// ProvisionedVRAM is the slot's VRAM in MiB; nil if the slot has none.
	ProvisionedVRAM *int64 `json:"provisioned_vram_mib,omitempty"`
	// RequestGPUs and RequestVRAM (MiB) as the job asked; nil if it did not.
	RequestGPUs *int64 `json:"request_gpus,omitempty"`
	RequestVRAM *int64 `json:"request_vram_mib,omitempty"`
	// Group and VO are the job's accounting group and virtual organisation;
	// empty if it has none.
	Group string `json:"accounting_group,omitempty"`
	VO    string `json:"vo,omitempty"`
	// Program, Batch and Schedd are the last part of Cmd, JobBatchName and the first
	// part of GlobalJobId; RequestCPUs and RequestMemory (MiB) as the job asked. They
	// are for records.
	Program       string `json:"program,omitempty"`
	Batch         string `json:"batch,omitempty"`
	Schedd        string `json:"schedd,omitempty"`
	RequestCPUs   *int64 `json:"request_cpus,omitempty"`
	RequestMemory *int64 `json:"request_memory_mib,omitempty"`
	// RequestThreads is RequestGPUThreads as the job ad has it, a percentage or
	// what the user wrote instead; empty if it has none.
	RequestThreads string `json:"request_gpu_threads,omitempty"`
}

// Reply is one reply. Error is set if the request itself was refused (unknown
// caller, bad request); Refusal if a job is refused.
type Reply struct {
	Version int      `json:"v"`
	Error   string   `json:"error,omitempty"`
	Grant   *Grant   `json:"grant,omitempty"`
	Refusal *Refusal `json:"refusal,omitempty"`
	// GPUs and Holds answer OpMonitor.
	GPUs  []Acceptance `json:"gpus,omitempty"`
	Holds []Hold       `json:"holds,omitempty"`
	// Whole answers OpMonitor where there are elastic GPUs.
	Whole *WholeGPUs `json:"whole,omitempty"`
	// Uses answers OpUsage.
	Uses []Use `json:"uses,omitempty"`
	// Ended answers OpEnd.
	Ended *Ended `json:"ended,omitempty"`
	// Here answers OpHere; NoJob says that the caller is no process of a job.
	Here  *Here `json:"here,omitempty"`
	NoJob bool  `json:"no_job,omitempty"`
	// Verified answers OpVerify.
	Verified []Verification `json:"verified,omitempty"`
	// Done answers OpRestart: what was done, as a sentence.
	Done string `json:"done,omitempty"`
	// Node answers OpNode.
	Node *NodeStatus `json:"node,omitempty"`
	// Closing answers OpClose and OpOpen.
	Closing *Closing `json:"closing,omitempty"`
	// Status answers OpStatus; its schema is agent.Status.
	Status *Status `json:"status,omitempty"`
}

// Grant is what an admitted job gets.
type Grant struct {
	// Environment replaces and adds variables.
	Environment map[string]string `json:"environment"`
	// Defaults are set only if the job does not set them itself.
	Defaults map[string]string `json:"defaults,omitempty"`
	// Wall says what enforces the budget: "daemon", "none", …
	Wall string `json:"wall"`
}

// Refusal says why a job must not start here.
type Refusal struct {
	// Requeue: the node is at fault, the job may run elsewhere. Otherwise the
	// job is at fault and is held.
	Requeue bool `json:"requeue"`
	// Code is HTCondor's hook status: 1-299 hold, 300 and above requeue.
	Code int `json:"code"`
	// Reason is a sentence for the job's event log: what, where, what to do.
	Reason string `json:"reason"`
}

// Acceptance is whether one GPU takes new jobs.
type Acceptance struct {
	UUID string `json:"uuid"`
	// Whole: jobs have it whole, and HTCondor has one slot for all such GPUs.
	Whole  bool `json:"whole,omitempty"`
	Accept bool `json:"accept"`
	// Reason says why not; empty if it accepts.
	Reason string `json:"reason,omitempty"`
	// ClosedBy are the owners of its holds, sorted; empty if it accepts.
	ClosedBy []string `json:"closed_by,omitempty"`
	// Tenant is the Owner (job ad) that new jobs must have, because jobs of its
	// account run there now; empty if any owner's job may come.
	Tenant string `json:"tenant,omitempty"`
	// LeastMiB is the smallest request_vram that new jobs may have; 0 for none.
	LeastMiB int64 `json:"least_mib,omitempty"`
	// AboveMiB: a MIG device takes only jobs that request more VRAM than this, more
	// CPUs than AboveCPUs or more memory than AboveMemoryMiB; 0 for any. It leaves those
	// that a smaller profile serves to that while larger wait.
	AboveMiB       int64 `json:"above_mib,omitempty"`
	AboveCPUs      int   `json:"above_cpus,omitempty"`
	AboveMemoryMiB int64 `json:"above_memory_mib,omitempty"`
	// Time is the agent's clock at the judgement.
	Time time.Time `json:"time"`
	// Verified is what came of the last verification; nil if there was none.
	Verified *bool `json:"verified,omitempty"`
	// Pending is what HTCondor does not run yet of the plan, as a sentence;
	// empty if it runs as planned.
	Pending string `json:"pending,omitempty"`
	// Since is when Accept, Reason, Tenant or what it takes above last changed; that is sent to
	// HTCondor's collector at once, everything else with the slot's next
	// update. Zero if unknown: then every judgement is sent at once.
	Since time.Time `json:"since,omitzero"`
}

// Closing is what came of closing or opening GPUs.
type Closing struct {
	// Text is a sentence for each GPU.
	Text []string `json:"text"`
	// Devices are the UUIDs of the GPUs and MIG devices that were closed, as
	// StatusGPU has them.
	Devices []string `json:"devices,omitempty"`
}

// The verbs of OpNode.
const (
	VerbStatus  = "status"
	VerbQuiesce = "quiesce"
	VerbResume  = "resume"
	VerbRevert  = "revert"
)

// NodeStatus is how far a node is on its way out of service and back.
type NodeStatus struct {
	// Phase is "quiescing", "quiesced", "reverting", "reverted" or "resuming";
	// empty for a node that serves.
	Phase  string    `json:"phase"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Text is what a verb did.
	Text string `json:"text,omitempty"`
	// Jobs are those that a node which is leaving waits for, Waits what is waited
	// for in words.
	Jobs  []string `json:"jobs,omitempty"`
	Waits string   `json:"waits,omitempty"`
	// Holders are other processes that have the driver's devices open.
	Holders []NodeHolder `json:"holders,omitempty"`
}

// NodeHolder is a process that has the driver's devices open.
type NodeHolder struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Unit is its systemd unit; empty if it has none.
	Unit string `json:"unit,omitempty"`
}

// GPUHold is why a GPU takes no new jobs, and whose word that is: "agent",
// "operator", "node" or the name of a site's program.
type GPUHold struct {
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
	// Since is when it was closed; zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Jobs are those that it keeps off: "shared", "whole", or empty for all.
	Jobs string `json:"jobs,omitempty"`
}

// WholeGPUs is how many elastic GPUs take whole jobs.
type WholeGPUs struct {
	// Open may be in use, GPUs are they; Least is the fewest that a new job must ask for.
	Open  int      `json:"open"`
	GPUs  []string `json:"gpus"`
	Least int      `json:"least"`
	// Reason says why none is open; empty if some are.
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
	// Since is when that last changed.
	Since time.Time `json:"since,omitzero"`
}

// Hold is a job that the startd shall put on hold.
type Hold struct {
	// Slot is the dynamic slot, "slot1_2"; Job is "cluster.proc".
	Slot string `json:"slot"`
	Job  string `json:"job"`
	// Code is the hold's subcode, Reason its sentence for the user.
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// Ended is what became of a slot's MPS clients.
type Ended struct {
	// Clients left their server; Remaining did not within the time allowed.
	Clients   int `json:"clients"`
	Remaining int `json:"remaining,omitempty"`
	// Wait is set while HTCondor is to hold the job for this reason: its
	// supervisor waits for that instead of ending as if the job were done.
	Wait string `json:"wait,omitempty"`
}

// Verification is what came of one GPU's CUDA client.
type Verification struct {
	UUID string    `json:"uuid"`
	At   time.Time `json:"at,omitzero"`
	// Driver is the version it ran with.
	Driver string `json:"driver,omitempty"`
	// CUDA is the driver's CUDA version, Account the one that the client ran as,
	// LimitMiB its limit.
	CUDA     string `json:"cuda,omitempty"`
	Account  string `json:"account,omitempty"`
	LimitMiB int64  `json:"limit_mib,omitempty"`
	// OK: it attached, an allocation below its limit succeeded and one above
	// did not. Otherwise Text says what did not hold.
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	// Skipped says why it was not tried; then nothing else is known.
	Skipped string `json:"skipped,omitempty"`
	// Steps are the client's calls.
	Steps []VerifyStep `json:"steps,omitempty"`
}

// VerifyStep is one call of a verification's client, with the driver's name of
// its result.
type VerifyStep struct {
	Step         string `json:"step"`
	Result       string `json:"result"`
	Milliseconds int64  `json:"ms"`
}

// Status is the agent's whole state for "gpuslot status".
type Status struct {
	Version     string `json:"version"`
	Host        string `json:"host"`
	Driver      string `json:"driver,omitempty"`
	HTCondor    string `json:"htcondor,omitempty"`
	ConfigFile  string `json:"config_file"`
	ConfigError string `json:"config_error,omitempty"`
	// Observe: gpuslot changes nothing on the node, and jobs have its GPUs by
	// HTCondor's own rules.
	Observe bool `json:"observe,omitempty"`
	// Node is nil for a node that serves.
	Node *NodeStatus `json:"node,omitempty"`
	// PlanAge is when the plan in force was applied.
	PlanApplied time.Time `json:"plan_applied"`
	// MPS lists what the installed control daemon can do and what it lacks,
	// Walls what is missing for lack of it; complete sentences.
	MPS      []Capability `json:"mps,omitempty"`
	Walls    []string     `json:"missing_walls,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
	Absent   []string     `json:"absent,omitempty"`
	GPUs     []StatusGPU  `json:"gpus"`
	// Repartition tells of GPUs whose MIG layouts follow the work that waits.
	Repartition []StatusRepartition `json:"repartition,omitempty"`
	// Startds are HTCondor's that answered, Changes what they do not run yet of
	// the plan.
	Startds []StatusStartd `json:"startds,omitempty"`
	Changes []Change       `json:"changes,omitempty"`
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

// Change is what one condor_startd does not run yet of the plan.
type Change struct {
	// Daemon is the startd's name in DAEMON_LIST, Startd its local name.
	Daemon string `json:"daemon"`
	Startd string `json:"startd,omitempty"`
	// Need is "restart", "reconfig" or "start".
	Need string `json:"need"`
	// Plan is the one that it is to run with.
	Plan string `json:"plan"`
	// GPUs and Jobs are those that a restart concerns.
	GPUs []string    `json:"gpus,omitempty"`
	Jobs []ChangeJob `json:"jobs,omitempty"`
	// Blocked is another daemon that has to change first.
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
	LimitMiB int64  `json:"daemon_limit_mib,omitempty"`
	Accept   bool   `json:"accept"`
	Reason   string `json:"reason,omitempty"`
	// Holds are those that close it.
	Holds  []GPUHold `json:"holds,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	// Wall is what holds the weakest of the budgets: "daemon", "none", …
	Wall string `json:"wall"`
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
	// SM is the share of its multiprocessors that were busy in the last sample,
	// 0 to 1, Watts what it draws; nil if unknown.
	SM    *float64 `json:"sm_activity,omitempty"`
	Watts *float64 `json:"power_watts,omitempty"`
	// Strangers are processes on a shared GPU that are no MPS clients.
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
	Hold string `json:"hold,omitempty"`
	Wall string `json:"wall"`
	// SMs is how many multiprocessors are its own, in a static SM partition; nil
	// if none are, or unknown.
	SMs   *int      `json:"own_multiprocessors,omitempty"`
	Since time.Time `json:"since"`
	// Confirmed: the startd's own ads agree with what the hook told.
	Confirmed bool `json:"confirmed"`
}

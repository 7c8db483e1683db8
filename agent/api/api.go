// Package api owns the conversation on the agent's unix socket: one JSON
// object in a line as request, one as reply, then the connection closes. It
// holds the types and a client that HTCondor's side can start in a
// millisecond; who the caller is, the server reads from the kernel, never from
// a request. Start at Call.
package api

import (
	"fmt"
	"time"
)

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
	// OpHook admits a job as OpPrepare does, with the hook's own input and output: what
	// gpuslot-start asks, which reads no job ad.
	OpHook Op = "hook"
	// OpMonitor asks which GPUs accept jobs: root and the account of HTCondor's daemons.
	OpMonitor Op = "monitor"
	// OpStatus asks for the state: everybody. Only root and the agent's own account get
	// the names of others.
	OpStatus Op = "status"
	// OpStart puts the limits of the caller's cgroup in force before the job's program
	// runs: a job's supervisor.
	OpStart Op = "start"
	// OpEnd lets the MPS clients of the caller's own slot leave before a signal
	// ends them: a job's supervisor.
	OpEnd Op = "end"
	// OpVerify runs a CUDA client through the way of a job on one GPU, or on all
	// that are idle: root and the agent's own account.
	OpVerify Op = "verify"
	// OpRestart restarts a GPU's control daemon: root and the agent's own account.
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

// What a job's supervisor reads from the agent's link: StartRequired, no program
// runs before the agent has answered; StartAsked, a job starts without an answer too.
const (
	StartRequired = "required"
	StartAsked    = "asked"
)

// Request is one request.
type Request struct {
	Version int `json:"v"`
	Op      Op  `json:"op"`
	// Job is what the hook or the wrapper was told; for OpPrepare.
	Job *Job `json:"job,omitempty"`
	// Hook is what the hook was given; for OpHook.
	Hook *Hook `json:"hook,omitempty"`
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

// Hook is what HTCondor gives the hook of a job.
type Hook struct {
	// Ad is its standard input, the job ad.
	Ad string `json:"ad"`
	// GPUs are the slot's, as _CONDOR_AssignedGPUs lists them.
	GPUs string `json:"gpus,omitempty"`
	// Args are its arguments: the site's environment for all jobs, taken apart.
	Args []string `json:"args,omitempty"`
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
	// Docker says that the job's processes are below docker's daemon, not below its
	// starter, so that what they use is not known.
	Docker bool `json:"docker,omitempty"`
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
	// Hook answers OpHook: what the hook prints.
	Hook string `json:"hook,omitempty"`
	// GPUs and Holds answer OpMonitor.
	GPUs  []Acceptance `json:"gpus,omitempty"`
	Holds []Hold       `json:"holds,omitempty"`
	// Whole answers OpMonitor where there are elastic GPUs.
	Whole *WholeGPUs `json:"whole,omitempty"`
	// NoStart answers OpMonitor: why OpStart refuses every job; empty if it does not.
	NoStart string `json:"no_start,omitempty"`
	// Uses answers OpUsage.
	Uses []Use `json:"uses,omitempty"`
	// Started answers OpStart, if there is no Refusal.
	Started *Started `json:"started,omitempty"`
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
	// EnforcedBy says what enforces the budget: "daemon", "none", …
	EnforcedBy string `json:"wall"`
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
	// UnlistedMiB is the VRAM in use that NVML lists with no process, 0 where that is no more
	// than tolerated; TakenMiB how much of it the pool still has for new jobs.
	UnlistedMiB int64 `json:"unlisted_mib,omitempty"`
	TakenMiB    int64 `json:"taken_mib,omitempty"`
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

// Headline is the node's phase, since when and why, in one line; times are local.
func (n NodeStatus) Headline() string {
	if n.Phase == "" {
		return "the node serves"
	}
	return fmt.Sprintf("the node is %s since %s: %s", n.Phase, n.Since.Local().Format(time.DateTime), n.Reason)
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
	// Since is when it was decided: a job that starts later, under the same id and in
	// the same slot, is not meant.
	Since time.Time `json:"since"`
}

// Started says that a job's program may run.
type Started struct {
	// Supervise: the job has a share of a GPU, so its MPS clients leave before it ends.
	Supervise bool `json:"supervise,omitempty"`
	// Reserved: the driver keeps VRAM for the job's cgroup, which OpEnd gives back.
	Reserved bool `json:"reserved,omitempty"`
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

package api

// The codes of a Refusal, which end up as the subcode of HTCondor's hold code
// 19, of its code 21 for a job that was running, or in the requeue's text. Below 300 the job is at fault and is held;
// from 300 on the node is, and the job goes back to the queue.
const (
	// CodeNoRequest: a job on a shared GPU says no request_vram.
	CodeNoRequest = 71
	// CodeTooLarge: request_vram is above the GPU's largest request.
	CodeTooLarge = 72
	// CodeSeveralGPUs: more than one GPU on a slot of a shared GPU.
	CodeSeveralGPUs = 73
	// CodeBadGPUs: the slot's GPU ids repeat or are no UUIDs.
	CodeBadGPUs = 74
	// CodeBadJob: the job ad or its environment cannot be read; the hook says it by itself.
	CodeBadJob = 75

	// CodeOverBudget: the job's processes together use more than its budget.
	CodeOverBudget = 76
	// CodeUnattached: a process of the job computes beside the control daemon.
	CodeUnattached = 77
	// CodeTooManyClients: the job has more MPS clients than its share allows.
	CodeTooManyClients = 78

	// CodeBadThreads: RequestGPUThreads is no percentage, or above the bound.
	CodeBadThreads = 79
	// CodeOtherGPU: a process of the job computes on a GPU that its slot does not hold.
	CodeOtherGPU = 80
	// CodeBadRequest: request_vram is no whole number of MiB, or too small to be
	// meant in MiB.
	CodeBadRequest = 81
	// CodeAtLimit: the job ended by itself at the limit of its VRAM; the access
	// point's rule holds it, with HTCondor's code 3, to try again with more.
	CodeAtLimit = 82
	// CodeNearLimit: the job came close to the limit of its VRAM; the startd stops
	// it early, for it to be tried again with more.
	CodeNearLimit = 83
	// CodeLeftCgroup: a process of the job left its cgroup, and with it the driver's limit
	// of the job's VRAM; or the job switched off that limit.
	CodeLeftCgroup = 84

	// CodeClosed: the GPU is closed, or its control daemon is not proven healthy.
	CodeClosed = 371
	// CodeOtherTenant: jobs of another account hold the GPU.
	CodeOtherTenant = 372
	// CodeNoAgent: the agent does not answer; the hook says it by itself.
	CodeNoAgent = 373
	// CodeNotPlanned: the plan in force does not know the GPU.
	CodeNotPlanned = 374
)

// firstRequeue is the lowest hook status that requeues instead of holding.
const firstRequeue = 300

// Refuse is a refusal with Requeue as HTCondor reads the code.
func Refuse(code int, reason string) *Refusal {
	return &Refusal{Requeue: code >= firstRequeue, Code: code, Reason: reason}
}

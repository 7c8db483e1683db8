package api

// Here answers OpHere: what the caller's own job holds. Of other jobs it tells
// their number and nothing else.
type Here struct {
	// Slot is "slot1_2", Job "cluster.proc"; Job is empty if it is not known.
	Slot string `json:"slot"`
	Job  string `json:"job,omitempty"`
	// GPUs are those that the job has, or has a part of.
	GPUs []HereGPU `json:"gpus"`
	// Hold is why HTCondor is about to hold the job; empty if it is not.
	Hold string `json:"hold,omitempty"`
}

// HereGPU is a job's part of one GPU.
type HereGPU struct {
	UUID string `json:"uuid"`
	Name string `json:"name,omitempty"`
	// BudgetMiB is the VRAM that all its processes may have together.
	BudgetMiB int64 `json:"budget_mib"`
	// UseMiB is what they have, in the last sample; nil if unknown.
	UseMiB *int64 `json:"vram_used_mib,omitempty"`
	// EnforcedBy is what holds the job to its budget: "cgroup", "daemon",
	// "watch", "none"; "whole" and "mig" if the job has the device alone.
	EnforcedBy string `json:"wall"`
	// SMs is how many multiprocessors are its own; nil if none are, or unknown.
	SMs *int `json:"own_multiprocessors,omitempty"`
	// Neighbours is the number of other jobs on the GPU now.
	Neighbours int `json:"neighbours"`
}

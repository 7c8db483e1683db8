package simulate

// Result is what a policy did with a stream of jobs.
type Result struct {
	Policy string `json:"policy"`
	// Note is the policy's.
	Note string `json:"note,omitempty"`
	// Partial: the run was ended before the last job.
	Partial bool `json:"partial,omitempty"`
	// Jobs came; of those Refused fit no slot of the pool, Started got one, Ended are done.
	// In a comparison only jobs come that fit under each policy, and Refused is how many of
	// all did not fit under this one.
	Jobs    int `json:"jobs"`
	Refused int `json:"refused,omitempty"`
	Started int `json:"started"`
	Ended   int `json:"ended"`
	// Hours is from the first arrival to the last end.
	Hours float64 `json:"hours"`
	// PerHour is the number of jobs done in an hour of that.
	PerHour float64 `json:"jobs_per_hour"`
	// Full is the throughput while jobs waited; nil if none did.
	Full *Full `json:"full_load,omitempty"`
	// Wait is from arrival to start, in seconds.
	Wait WaitTimes `json:"wait_seconds"`
	// MeanRun is the mean time from start to end, in seconds, of the jobs that ended.
	MeanRun float64 `json:"mean_run_seconds"`
	// GPUBusy, SM and VRAM are the parts of the pool's GPUs on which a job was, of
	// their multiprocessors that worked, and of their memory that was given to jobs.
	GPUBusy float64 `json:"gpu_busy"`
	SM      float64 `json:"sm"`
	VRAM    float64 `json:"vram"`
	// Asked is the part of the pool's memory that the jobs with a slot had asked for.
	Asked float64 `json:"vram_asked"`
	// KWh is the energy of all nodes, KJPerJob that of each job that ended.
	KWh      float64 `json:"kwh"`
	KJPerJob float64 `json:"kj_per_job"`
	// Concurrent is the largest number of jobs that ran at once.
	Concurrent int `json:"most_at_once"`
	// Over are jobs that really used more VRAM than they had: they ran here as if they
	// had it, and would be held or run again with more.
	Over int `json:"over_budget,omitempty"`
	// Gain is the work at full load by that of the first policy of the comparison, Energy the
	// energy of a job likewise; nil where it is not known.
	Gain   *Interval `json:"gain,omitempty"`
	Energy *Interval `json:"energy,omitempty"`
	// Changes is how often GPUs got another MIG layout.
	Changes int `json:"mig_changes,omitempty"`
}

// Interval is a value with its bounds: what sharing.Expected, Worst and Best make of it.
type Interval struct {
	Low      float64 `json:"low"`
	Expected float64 `json:"expected"`
	High     float64 `json:"high"`
}

// Full is the time in which jobs waited for a slot.
type Full struct {
	Hours float64 `json:"hours"`
	// PerHour is the work done in it, in jobs an hour; parts of jobs count as parts.
	PerHour float64 `json:"jobs_per_hour"`
	// Work is how many jobs' hours alone on their GPUs are done in an hour.
	Work float64 `json:"work"`
	// Stranded is the part of the pool's VRAM that no job had although jobs waited:
	// of no use to any of them. Unasked is the part that jobs had and did not ask for.
	Stranded float64 `json:"vram_stranded"`
	Unasked  float64 `json:"vram_unasked"`
}

// WaitTimes is how values are spread.
type WaitTimes struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
}

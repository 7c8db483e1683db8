// Package advise turns the records of jobs into advice: how much VRAM each class
// of jobs should ask for, how many fit a GPU, whether MPS, MIG or whole GPUs serve
// it, and what that would bring. It is pure, knows no node, and lets agent/plan and
// mig say what fits. What it promises holds whatever the jobs' distribution; where
// the records do not tell, it says so. Start at Adviser.
package advise

import "time"

// Schema is the first field of the advice as JSON.
const Schema = "gpuslot-advice/1"

// Advice is everything that the records say.
type Advice struct {
	Schema string `json:"schema"`
	// From and To are the first begin and the last end.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Records are those that count: one for each job and GPU. Twice came again, Early
	// ended before the time asked for.
	Records int `json:"records"`
	Twice   int `json:"records_twice,omitempty"`
	Early   int `json:"records_too_early,omitempty"`
	Nodes   int `json:"nodes,omitempty"`
	GPUs    int `json:"gpus"`
	// Newest is the end of the last job of all, too early or not.
	Newest time.Time `json:"newest,omitzero"`
	// Risk is the one asked for, Confidence that of every promise.
	Risk       float64 `json:"risk"`
	Confidence float64 `json:"confidence"`
	// Changed is when GPUs began to be given otherwise; absent if they did not.
	Changed *time.Time `json:"changed,omitempty"`
	// ChangedBy says what tells before from after: "date", the one asked for; "mode",
	// jobs that share GPUs from those that do not, which may run at the same time.
	ChangedBy string `json:"changed_by,omitempty"`
	// Users, Groups and Classes by reserved GPU-hours, the most first.
	Users    []User    `json:"users"`
	Groups   []Group   `json:"groups"`
	Classes  []*Class  `json:"classes"`
	Settings []Setting `json:"settings"`
	// Before and after of all jobs together.
	Comparison *Comparison `json:"comparison,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
}

// Hours are GPU-hours of whole GPUs.
type Hours struct {
	Reserved float64 `json:"reserved_gpu_hours"`
	// Used is the multiprocessors' time of the jobs of which it is known, Unused what
	// these reserved and did not use; Unknown is what the others reserved.
	Used    Range   `json:"used_gpu_hours,omitzero"`
	Unused  Range   `json:"unused_gpu_hours,omitzero"`
	Unknown float64 `json:"reserved_gpu_hours_use_unknown"`
}

// User sums up a user's jobs.
type User struct {
	User string `json:"user"`
	Jobs int    `json:"jobs"`
	Hours
}

// Group sums up an accounting group's jobs.
type Group struct {
	Group string `json:"group"`
	Jobs  int    `json:"jobs"`
	Hours
}

// Class is the advice for jobs that are alike.
type Class struct {
	Key
	// Asked are their request_vram in MiB in the order of time, 0 for none.
	Asked []int64 `json:"request_vram_mib"`
	Jobs  int     `json:"jobs"`
	// Grown ran again with a larger request.
	Grown int `json:"jobs_grown,omitempty"`
	Hours
	// Minutes is the run time. SM and MemoryTraffic are the parts of the time in
	// which the multiprocessors and the memory interface were busy.
	Minutes       Range `json:"run_minutes,omitzero"`
	SM            Range `json:"sm_activity,omitzero"`
	MemoryTraffic Range `json:"memory_activity,omitzero"`
	// Peaks is the distribution of the jobs' largest VRAM, by budgets.
	Peaks []Peak `json:"vram_peaks,omitempty"`
	// StepMiB is that of the budgets.
	StepMiB int64 `json:"vram_step_mib"`
	// MedianMiB and LargestMiB are of those.
	MedianMiB  int64   `json:"vram_peak_median_mib,omitempty"`
	LargestMiB int64   `json:"vram_peak_largest_mib,omitempty"`
	Curve      *Curve  `json:"vram_curve,omitempty"`
	Request    Request `json:"request"`
	Verdict    Verdict `json:"present_request"`
	Fit        *Fit    `json:"fit,omitempty"`
	Mode       Mode    `json:"mode"`
	Expect     Expect  `json:"expect"`
	// Submit are the lines for the submit file.
	Submit     []string    `json:"submit_lines,omitempty"`
	Comparison *Comparison `json:"comparison,omitempty"`
	Notes      []string    `json:"notes,omitempty"`

	reserved float64
	model    string
}

// Peak is a number of jobs whose largest VRAM a budget holds, and the next
// smaller one does not.
type Peak struct {
	MiB  int64 `json:"mib"`
	Jobs int   `json:"jobs"`
}

package api

// Use is what one running job used up to now, on all GPUs of its slot
// together. Sums begin with the job, or with the agent if that is younger. What
// is not known is nil.
type Use struct {
	// Slot is the dynamic slot, "slot1_2"; Job is "cluster.proc".
	Slot string `json:"slot"`
	Job  string `json:"job,omitempty"`
	// Seconds since the job was admitted.
	Seconds float64 `json:"seconds"`
	// PeakMiB is the largest VRAM that was seen of it.
	PeakMiB *int64 `json:"vram_peak_mib,omitempty"`
	// GPUSeconds are physical GPU-seconds of multiprocessor time, between Min
	// and Max; all three are equal where the job had its device alone.
	GPUSeconds    *float64 `json:"gpu_seconds,omitempty"`
	GPUSecondsMin *float64 `json:"gpu_seconds_min,omitempty"`
	GPUSecondsMax *float64 `json:"gpu_seconds_max,omitempty"`
	// Joules are the job's part of the energy, apportioned.
	Joules *float64 `json:"joules,omitempty"`
}

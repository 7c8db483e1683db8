package budget

import "github.com/gpuslot/gpuslot/gpu"

// Reserved is a shared GPU as HTCondor and the last sample have it.
type Reserved struct {
	// Pool is what budgets are given from. Free is not in use on the device.
	Pool gpu.MiB
	Free gpu.Bytes
	Jobs []Part
}

// Part is the budget of a running job, and what NVML lists of its processes.
type Part struct {
	Budget gpu.MiB
	Used   gpu.Bytes
}

// Missing returns the VRAM that the pool still has for new jobs although it is in use, and
// what the running jobs would lack if all took the whole of their budgets.
func (b Reserved) Missing() (taken, eaten gpu.MiB) {
	unbooked := b.Pool
	left := b.Free.MiB() // rounded down, and so is what jobs use
	for _, p := range b.Jobs {
		unbooked -= p.Budget
		left -= max(0, p.Budget-p.Used.MiB())
	}
	unbooked = max(0, unbooked)
	return min(max(0, unbooked-left), unbooked), max(0, -left)
}

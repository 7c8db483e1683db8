package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Job is one job of a stream.
type Job struct {
	// Name is the job's in a trace ("12.0"); it may be empty.
	Name string
	// Owner is whose turn it is when several wait; Group the accounting group.
	Owner, Group string
	// Arrival is since the stream's beginning.
	Arrival time.Duration
	// GPUs is request_gpus; VRAM is request_vram, 0 if the job names none; CPUs and
	// Memory are request_cpus and request_memory.
	GPUs   int
	VRAM   gpu.MiB
	CPUs   int
	Memory gpu.MiB
	// Peak is the VRAM that it really uses at most, which Result.Over counts by; 0 means
	// not known.
	Peak gpu.MiB
	Work
}

// Work is what a job does, measured when it has a whole GPU to itself.
type Work struct {
	// Seconds is the run time without Dead.
	Seconds float64
	// Dead is the time in seconds in which the job holds its slot and needs neither
	// CPUs nor GPU: files that come and go, a queue at a server.
	Dead float64
	// Kernel is the part of Seconds, 0 to 1, in which a kernel of the job runs; the
	// rest is the host's.
	Kernel float64
	// SM is the part of the GPU's multiprocessors that its kernels fill, and
	// Bandwidth the part of its memory's bandwidth; both 0 to 1.
	SM, Bandwidth float64
}

// Check returns what is impossible.
func (j Job) Check() error {
	switch {
	case j.Arrival < 0:
		return fmt.Errorf("arrives at %s; no job can come before the beginning", j.Arrival)
	case j.GPUs < 1 || j.GPUs > maxGPUs:
		return fmt.Errorf("wants %d GPUs; it is 1 to %d", j.GPUs, maxGPUs)
	case min(j.VRAM, j.Peak, j.Memory, gpu.MiB(j.CPUs)) < 0 || max(j.VRAM, j.Peak, j.Memory, gpu.MiB(j.CPUs)) > maxAmount:
		return fmt.Errorf("wants %s of VRAM, %d CPUs, %s of memory and uses %s of VRAM; each is 0 to %d", j.VRAM, j.CPUs,
			j.Memory, j.Peak, int64(maxAmount))
	}
	return j.check()
}

// maxGPUs is more than any node has.
const maxGPUs = 64

// maxAmount of MiB or CPUs is more than any node has.
const maxAmount gpu.MiB = 1 << 28

// maxSeconds is a hundred years.
const maxSeconds = 100 * 365.25 * 86400

func (w Work) check() error {
	for _, v := range []struct {
		name        string
		value, most float64
	}{{"run time", w.Seconds, maxSeconds}, {"dead time", w.Dead, maxSeconds}, {"kernel part", w.Kernel, 1},
		{"SM part", w.SM, 1}, {"bandwidth part", w.Bandwidth, 1}} {
		if math.IsNaN(v.value) || v.value < 0 || v.value > v.most {
			return fmt.Errorf("its %s is %g; it is 0 to %g", v.name, v.value, v.most)
		}
	}
	return nil
}

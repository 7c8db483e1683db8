package plan

import (
	"github.com/gpuslot/gpuslot/gpu"
)

// Request is what a typical job asks for; each value counts as at least 1.
type Request struct {
	CPUs   int     `json:"cpus"`
	Memory gpu.MiB `json:"memory_mib"`
	VRAM   gpu.MiB `json:"vram_mib"`
}

// Capacity is how many jobs of one kind each resource allows.
type Capacity struct {
	// GPU is empty for the sum over all shared GPUs.
	GPU    gpu.UUID `json:"gpu,omitempty"`
	CPUs   int      `json:"cpus"`
	Memory int      `json:"memory"`
	VRAM   int      `json:"vram"`
	Shares int      `json:"shares"`
	// Jobs is how many run at once: the least of the four on each GPU.
	Jobs int `json:"jobs"`
	// RunsOut names the resources that run out first: "CPUs", "memory",
	// "VRAM", "shares".
	RunsOut []string `json:"runs_out_first,omitempty"`
}

// Capacity says for each shared GPU and for all of them how many such jobs run
// at once. Whole GPUs are left out: they serve jobs that ask for whole cards.
func (p Plan) Capacity(r Request) (perGPU []Capacity, all Capacity) {
	perGPU = []Capacity{}
	for _, g := range p.GPUs {
		if !g.Shared() {
			continue
		}
		c := g.capacity(r, p.RequestVRAM)
		perGPU = append(perGPU, c)
		all.CPUs += c.CPUs
		all.Memory += c.Memory
		all.VRAM += c.VRAM
		all.Shares += c.Shares
		all.Jobs += c.Jobs
	}
	all.RunsOut = all.shortest()
	return perGPU, all
}

func (g GPU) capacity(r Request, v RequestVRAM) Capacity {
	c := Capacity{
		GPU:    g.UUID,
		CPUs:   g.Resources.CPUs / max(1, r.CPUs),
		Memory: int(g.Resources.Memory / max(1, r.Memory)),
		Shares: g.Shares,
	}
	if budget := v.Budget(r.VRAM); budget <= g.LargestRequest {
		c.VRAM = int(g.Pool / budget)
	}
	c.Jobs = min(c.CPUs, c.Memory, c.VRAM, c.Shares)
	c.RunsOut = c.shortest()
	return c
}

// shortest names the resources that allow the fewest jobs.
func (c Capacity) shortest() []string {
	var out []string
	least := min(c.CPUs, c.Memory, c.VRAM, c.Shares)
	for _, r := range []struct {
		jobs int
		name string
	}{{c.CPUs, "CPUs"}, {c.Memory, "memory"}, {c.VRAM, "VRAM"}, {c.Shares, "shares"}} {
		if r.jobs == least {
			out = append(out, r.name)
		}
	}
	return out
}

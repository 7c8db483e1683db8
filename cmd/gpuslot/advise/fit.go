package advise

import (
	"math"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// Fit is how many jobs of a class one GPU of its model serves at a time, by each
// of what bounds it. Nil is not known.
type Fit struct {
	Model     string `json:"model"`
	MemoryMiB int64  `json:"memory_mib"`
	// PoolMiB is the VRAM that the plan gives out, ByVRAM what it holds of the
	// recommended request.
	PoolMiB int64 `json:"vram_pool_mib"`
	ByVRAM  *int  `json:"by_vram,omitempty"`
	// BySM and ByMemoryTraffic are until the multiprocessors, or the memory
	// interface, are busy all the time.
	BySM            *int `json:"by_sm,omitempty"`
	ByMemoryTraffic *int `json:"by_memory_traffic,omitempty"`
	// ByHost is what CPUs and memory of the named node allow.
	ByHost *int `json:"by_host,omitempty"`
	// Shares are the plan's as the configuration is, DefaultMiB what a job without
	// request_vram gets there, and DefaultServes the part of the jobs for which that
	// is enough.
	Shares        int      `json:"shares"`
	DefaultMiB    int64    `json:"default_request_mib"`
	DefaultServes *float64 `json:"default_serves,omitempty"`
	// Jobs is the least of what is known of the hardware: how many shares are worth
	// having. Nil where VRAM is not known.
	Jobs *int `json:"jobs,omitempty"`
	// MIG is the smallest profile that a job fits, if the model has MIG.
	MIG *MIGFit `json:"mig,omitempty"`
	// NoMPS: the plan does not share the model through MPS.
	NoMPS bool `json:"no_mps,omitempty"`

	// cpus is the part of the node's CPUs in use with one job on each GPU; 0 is not known.
	cpus float64
}

// MIGFit is a MIG profile for a class.
type MIGFit struct {
	Profile string `json:"profile"`
	// Jobs is how many such instances one GPU has at most.
	Jobs      int   `json:"jobs"`
	MemoryMiB int64 `json:"memory_mib"`
	// Part is that of the GPU's compute slices.
	Part float64 `json:"compute_part"`

	// sms and bandwidth are its parts of the GPU's multiprocessors and memory interface.
	sms, bandwidth float64
}

// mostShares is more than MPS serves on any GPU; the plan knows the real number.
const mostShares = 256

// activities are a class's, each with 95 % bounds.
type activities struct{ sm, dram Range }

// fit holds a class against a GPU of its model.
func (b *Adviser) fit(c *class, r Request, d needs, a activities, m *model) (Fit, error) {
	as, err := b.offer(m, 0)
	if err != nil {
		return Fit{}, err
	}
	f := Fit{Model: m.name, MemoryMiB: int64(m.memory), PoolMiB: int64(as.Pool), Shares: as.Shares,
		DefaultMiB: int64(as.DefaultRequest)}
	if !as.Shared() {
		return Fit{Model: m.name, MemoryMiB: int64(m.memory), NoMPS: true}, nil
	}
	if d.n >= fewest {
		serves := round3(1 - d.part(as.DefaultRequest))
		f.DefaultServes = &serves
	}
	f.BySM, f.ByMemoryTraffic = filling(a.sm, 1), filling(a.dram, roomy)
	if r.Whole {
		none := 0
		f.ByVRAM, f.Jobs = &none, &none
	}
	if r.MiB > 0 {
		b.fitRequest(c, r, as, &f)
		f.MIG = migFit(m, gpu.MiB(r.MiB), a)
	}
	return f, nil
}

// fitRequest asks the plan how often the request fits.
func (b *Adviser) fitRequest(c *class, r Request, as offer, f *Fit) {
	t := c.all()
	ask := plan.Request{CPUs: ceilOf(t.cpus), Memory: gpu.MiB(ceilOf(t.memory)), VRAM: gpu.MiB(r.MiB)}
	per, _ := as.plan.Capacity(ask)
	for _, p := range per {
		if p.GPU != as.UUID {
			continue
		}
		f.ByVRAM = &p.VRAM
		if as.isReal && t.cpus.n > 0 {
			host := min(p.CPUs, p.Memory)
			f.ByHost = &host
			f.cpus = float64(ask.CPUs*len(as.plan.GPUs)) / float64(max(1, as.plan.Host.CPUs))
		}
	}
	jobs := mostShares
	for _, n := range []*int{f.ByVRAM, f.BySM, f.ByMemoryTraffic, f.ByHost} {
		if n != nil {
			jobs = min(jobs, *n)
		}
	}
	f.Jobs = &jobs
}

func ceilOf(r ratio) int {
	v, _ := r.value()
	return max(1, int(math.Ceil(v-1e-9)))
}

// filling is how many jobs of an activity keep something busy up to a part of the
// time; at least one.
func filling(a Range, upTo float64) *int {
	v := a.atBest()
	if v == nil {
		return nil
	}
	n := mostShares
	if *v > 0 {
		n = max(1, int(min(mostShares, upTo / *v + 1e-9)))
	}
	return &n
}

// migFit is the smallest profile with the VRAM and, where they are known, the parts
// of the multiprocessors and of the memory interface that a job keeps busy.
func migFit(m *model, need gpu.MiB, a activities) *MIGFit {
	if !m.hasMIG {
		return nil
	}
	chip := m.chip
	var best *gpu.Profile
	for i, p := range chip.Profiles {
		slices, units := float64(p.Slices)/float64(chip.Slices()), float64(p.Size)/float64(chip.Units())
		switch {
		case p.Memory < need || above(a.sm, slices) || above(a.dram, units) || special(p.Name):
			continue
		case best == nil || p.Size < best.Size || p.Size == best.Size && p.Slices < best.Slices:
			best = &chip.Profiles[i]
		}
	}
	if best == nil || best.Max < 2 {
		return nil
	}
	out := &MIGFit{Profile: best.Name, Jobs: best.Max, MemoryMiB: int64(best.Memory),
		Part: round3(float64(best.Slices) / float64(chip.Slices()))}
	out.sms, out.bandwidth = chip.Parts(*best)
	return out
}

func above(r Range, part float64) bool {
	v := r.atBest()
	return v != nil && *v > part
}

// special profiles have engines of which a GPU has few ("1g.10gb+me").
func special(name string) bool {
	for _, c := range name {
		if c == '+' || c == '-' {
			return true
		}
	}
	return false
}

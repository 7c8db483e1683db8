package plan

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// memoryStep is the unit to which HTCondor rounds request_memory up when it makes
// a slot (MODIFY_REQUEST_EXPR_REQUESTMEMORY).
const memoryStep gpu.MiB = 128

// Profiles are one place of each profile on the GPUs that follow what waits, the
// smallest profile first. Its CPUs and memory are what each place of it has.
func (p Plan) Profiles(follows func(MIGGPU) bool) (one []GPU) {
	for _, g := range p.GPUs {
		if g.Place == "" || !slices.ContainsFunc(p.MIG, func(m MIGGPU) bool { return m.UUID == g.Parent && follows(m) }) {
			continue
		}
		g.Resources.Memory -= g.Resources.Memory % memoryStep
		i := slices.IndexFunc(one, func(o GPU) bool { return o.Profile == g.Profile })
		if i < 0 {
			one = append(one, g)
			continue
		}
		r := &one[i].Resources
		r.CPUs, r.Memory = min(r.CPUs, g.Resources.CPUs), min(r.Memory, g.Resources.Memory)
	}
	slices.SortFunc(one, func(a, b GPU) int {
		return cmp.Or(
			cmp.Compare(a.Pool, b.Pool),
			cmp.Compare(a.Multiprocessors, b.Multiprocessors),
			cmp.Compare(a.Profile, b.Profile),
		)
	})
	return one
}

// Holds tells whether a slot of the profile has what a job asks for; 0 is not said.
func (g GPU) Holds(vram gpu.MiB, r Resources) bool {
	return vram <= g.Pool && r.CPUs <= g.Resources.CPUs && r.Memory <= g.Resources.Memory
}

// Below is the profile just below the largest that is waited for and not larger than
// that of a device: what Below holds leaves the device to larger jobs. Only if one
// profile holds all that a job asks for does that serve it, so there is one. ok is
// false if the device takes any job. profiles are as Profiles sorts them.
func Below(profiles []GPU, device string, waited func(profile string) bool) (below GPU, ok bool) {
	var last GPU
	for i, p := range profiles {
		if i > 0 && waited(p.Profile) {
			below, ok = last, true
		}
		if p.Profile == device {
			return below, ok
		}
		last = p
	}
	return GPU{}, false
}

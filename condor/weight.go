package condor

import "strconv"

// The values of Node.Weight.
const (
	WeightCPUs       = "cpus"
	WeightCPUsOrVRAM = "cpus-or-vram"
)

// weight is what a slot counts in the pool's accounts. The VRAM of a slot counts as
// the CPUs that go with it on its GPU.
func (t *text) weight(n Node) {
	switch n.Weight {
	case WeightCPUs:
		t.line("")
		t.set("SLOT_WEIGHT", "Cpus")
	case WeightCPUsOrVRAM:
		t.line("")
		t.comment("The larger of a slot's CPUs and of its part of the GPU, in CPUs of that GPU.")
		t.set("SLOT_WEIGHT", "max({real(Cpus), real(VRAM ?: 0) * (GPUSlotCpusPerMiB ?: 0.0)})")
	}
}

// cpusPerMiB is how many CPUs go with a MiB of a slot type's VRAM.
func (st slotType) cpusPerMiB() string {
	return strconv.FormatFloat(float64(st.share.CPUs)/float64(st.vram), 'g', 6, 64)
}

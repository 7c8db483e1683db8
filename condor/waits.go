package condor

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TakesWhole says whether such jobs may have elastic GPUs of the node whole, on at most so
// many of them: the part of START that does not change by the moment. What a job does not
// say, or requires in words that are not understood here, keeps it from nothing.
func (n Node) TakesWhole(w Waiting, most int) bool {
	group := n.elastic()
	if len(group) == 0 || w.GPUs < 1 || w.GPUs > min(most, len(group)) {
		return false
	}
	shared := largestShare(n)
	wants := w.GPUs >= 2 || w.VRAM > shared || n.WithoutRequest == WithoutRequestWhole && w.VRAM == 0
	least, smallest := leastOf(group)
	gpus := gpu.MiB(w.GPUs)
	if !wants || w.VRAM > smallest*gpus || w.CPUs > least.CPUs*w.GPUs || w.Memory > least.Memory*gpus {
		return false
	}
	return w.Require == "" || slices.ContainsFunc(group, func(d Device) bool {
		serves, known := evalRequire(w.Require, d.property(n.CUDA))
		return serves || !known
	})
}

// TakesShared says whether such jobs may have a share of some GPU of the node.
func (n Node) TakesShared(w Waiting) bool {
	return w.GPUs == 1 && 0 < w.VRAM && w.VRAM <= largestShare(n)
}

// ForDevice says whether such jobs may have a device of gpuslot's: one that says neither
// how much VRAM it wants nor which GPU is none for it.
func (w Waiting) ForDevice() bool { return w.GPUs == 1 && (w.VRAM > 0 || w.Require != "") }

// Waited is for how long the first of them has been idle.
func (w Waiting) Waited() time.Duration { return time.Duration(w.Waits) * time.Second }

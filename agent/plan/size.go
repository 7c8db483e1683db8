package plan

import (
	"math"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

const (
	// defaultShares is how often the paper's production node offers each card.
	defaultShares = 8
	// shareVRAM is the least pool per share where the plan chooses the number.
	shareVRAM gpu.MiB = 4096
	// mostSlices is the largest number of compute slices of any GPU.
	mostSlices = 7
)

// size plans one GPU without its CPUs and memory.
func size(c candidate, r config.RequestVRAM, w wishes, n *notes) GPU {
	g := GPU{
		UUID: c.UUID, Index: c.Index, Name: c.Name, PCI: c.PCI, Memory: c.Memory, Capability: c.Capability,
		Mode: c.mode, Threads: Threads{Policy: config.ThreadsUncapped},
		Tenancy: Tenancy{Policy: c.settings.Tenancy.Policy, User: c.settings.Tenancy.User},
		Parent:  c.parent, Profile: c.profile, Place: c.place, Slices: c.slices, Device: c.device, Why: c.why,
	}
	if c.parent != "" {
		g.Multiprocessors = c.Multiprocessors
	}
	if !shares(c.mode) {
		g.Shares, g.Pool, g.LargestRequest, g.DefaultRequest = 1, c.Memory, c.Memory, c.Memory
		return g
	}
	if c.mode == config.ModeTimeSlice {
		c.sliced(n)
	}
	g.Elastic = c.elastic
	g.ComputeMode = c.settings.ComputeMode
	g.Threads = Threads{
		Policy:  c.settings.Threads.Policy,
		Percent: c.settings.Threads.Percent,
		Most:    c.settings.MostThreads,
	}
	g.Tenancy = tenancyOf(c, n)
	if tooSmall(c, r.Minimum, r.Quantum) != "" {
		return g // decideModes names it
	}
	if c.settings.ReservedVRAM >= c.Memory {
		n.fail(c.UUID, "reserved_vram = %d, but the card has %s: leave room for "+
			"jobs", int64(c.settings.ReservedVRAM), c.Memory)
		return g
	}
	g.Kept, g.Pool = keptOf(c), poolOf(c, r.Quantum)
	if g.Pool < r.Minimum {
		n.fail(
			c.UUID,
			`reserved_vram = %d leaves a pool of %s, but request_vram.minimum is %s: reserve less, or use mode = "whole"`,
			int64(c.settings.ReservedVRAM),
			g.Pool,
			r.Minimum,
		)
		return g
	}
	g.Shares = sharesOf(c, g.Pool, r.Minimum, w, n)
	g.Threads = partitioned(c, g, w, n)
	g.LargestRequest = largestOf(c, g.Pool, r.Quantum, w, n)
	g.MaxClients = clientsOf(c, g.Shares, w)
	g.DefaultRequest = min((g.Pool / gpu.MiB(g.Shares)).Floor(r.Quantum), g.LargestRequest)
	return g
}

// sliced settles what a GPU without MPS has: several processes open it, there are no thread percentages, and its
// accounts need not take turns, because they have no server in common.
func (c *candidate) sliced(n *notes) {
	s := &c.settings
	if s.Threads.Policy != config.ThreadsUncapped || s.MostThreads != 0 {
		n.warn(c.UUID, `threads and threads_max mean nothing with mode = "time-slice": thread percentages need MPS`)
	}
	s.Threads, s.MostThreads, s.ComputeMode = config.Threads{Policy: config.ThreadsUncapped}, 0, gpu.ComputeModeDefault
	if s.TenancyFrom == config.FromDefaults {
		s.Tenancy = config.Tenancy{Policy: config.TenancyMultiUser}
	}
}

// sharesOf is how many jobs may run at once; at least 1. The pool holds at
// least one smallest budget.
func sharesOf(c candidate, pool, minimum gpu.MiB, w wishes, n *notes) int {
	fit, wish, ceiling := int(pool/minimum), c.settings.Shares, c.ceiling(w)
	if wish == 0 {
		most := min(defaultShares, int(pool/shareVRAM), ceiling, fit)
		if chunks, _, why := chunksOf(c); c.settings.Threads.Policy == config.ThreadsPartitioned && why == "" {
			most = min(most, chunks)
		}
		return max(1, most)
	}
	if c.parent != "" && wish > ceiling {
		n.warn(c.parent, "%s instead of %d on its MIG device %s: NVIDIA lowers the %d MPS clients of a GPU with the "+
			"compute slices, and one is kept for tools; set shares to %d or "+
			"less", counted(ceiling, "share", "shares"), wish, c.profile, w.ceiling+1, ceiling)
		wish = ceiling
	} else if wish > ceiling {
		n.fail(c.UUID, "shares = %d: MPS serves %d clients per GPU with this driver, and one is kept for tools: set "+
			"shares to %d or less", wish, ceiling+1, ceiling)
	}
	switch {
	case wish <= fit:
		return wish
	case w.shares && w.inheritsShares(c):
		n.warn(c.UUID, "%s instead of %d: with request_vram.minimum = %d its pool of %s holds no "+
			"more", counted(fit, "share", "shares"), wish, int64(minimum), pool)
		return fit
	}
	n.fail(c.UUID, "shares = %d: with request_vram.minimum = %d the pool of %s holds %d: set shares to %d or "+
		"less", wish, int64(minimum), pool, fit, min(fit, ceiling))
	return fit
}

// clientsOf is how many MPS clients one job may have: its part of what the driver serves; 0 without MPS.
func clientsOf(c candidate, shares int, w wishes) int {
	if c.mode == config.ModeTimeSlice {
		return 0
	}
	return c.ceiling(w) / shares
}

// largestOf is the largest budget of one job.
func largestOf(c candidate, pool, quantum gpu.MiB, w wishes, n *notes) gpu.MiB {
	wish := c.settings.LargestRequest
	switch {
	case wish == 0:
		return pool
	case wish <= pool:
		return wish.Floor(quantum)
	case w.largest && w.inheritsLargest(c):
		n.warn(c.UUID, "the largest request is %d instead of %d: its pool holds no more", int64(pool), int64(wish))
		return pool
	}
	n.fail(c.UUID, "largest_request = %d is above the pool of %s: set it to %d or less", int64(wish), pool, int64(pool))
	return pool
}

// ceiling is how many MPS clients the plan may count on. NVIDIA lowers the limit of a
// GPU on a MIG device in proportion to its compute slices: 48 become 6 on one of seven.
// Time slices have no such limit.
func (c candidate) ceiling(w wishes) int {
	if c.mode == config.ModeTimeSlice {
		return math.MaxInt
	}
	if c.parent == "" {
		return w.ceiling
	}
	own, all := 1, c.parentSlices
	if p, err := gpu.ParseProfileName(c.profile); err == nil {
		own = p.Slices
	}
	if all == 0 {
		all = mostSlices
	}
	const kept = 1 // as in ClientCeiling
	return max(1, (w.ceiling+kept)*min(own, all)/all-kept)
}

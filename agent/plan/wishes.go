package plan

import (
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// wishes tell a wish that was made for a certain card from one that a card only
// inherits from [sharing] or [host."…"]. An inherited wish is an error if no
// GPU of the node can meet it. If some can, it is lowered for the odd one, with
// a warning: a swapped card must not lose the node.
type wishes struct {
	// general holds for every GPU that no table names.
	general config.Settings
	// reserve, shares, largest and partitions say that some GPU meets the general
	// wish.
	reserve, shares, largest, partitions bool
	ceiling                              int
}

func wishesOf(cfg config.Config, host string, cs []candidate, r config.RequestVRAM, ceiling int) wishes {
	w := wishes{general: cfg.For(host, gpu.GPU{}), ceiling: ceiling}
	// Nobody asked for the default reserve, so no card has to meet it.
	w.reserve = w.general.ReservedVRAM == config.Default().For(host, gpu.GPU{}).ReservedVRAM
	for _, c := range cs {
		pool := poolOf(c, r.Quantum)
		if !shares(c.mode) || c.Capability.Before(gpu.Volta) || pool < r.Minimum {
			continue
		}
		w.reserve = w.reserve || w.inheritsReserve(c)
		w.shares = w.shares || w.inheritsShares(c) && c.settings.Shares <= int(pool/r.Minimum)
		w.partitions = w.partitions || w.inheritsThreads(c) && unpartitionable(c, max(1, c.settings.Shares)) == ""
		w.largest = w.largest || w.inheritsLargest(c) && c.settings.LargestRequest <= pool
	}
	return w
}

func (w wishes) inheritsReserve(c candidate) bool {
	return c.settings.ReservedVRAM == w.general.ReservedVRAM
}

func (w wishes) inheritsShares(c candidate) bool { return c.settings.Shares == w.general.Shares }

func (w wishes) inheritsLargest(c candidate) bool {
	return c.settings.LargestRequest == w.general.LargestRequest
}

func (w wishes) inheritsThreads(c candidate) bool { return c.settings.Threads == w.general.Threads }

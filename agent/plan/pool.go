package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// What a GPU keeps out of budgets where nothing says how much it is. Each is above
// every public figure.
const (
	// serverVRAM is the MPS server's, unless one was seen to use more. 66 MiB were listed of one on an H200 (run for real,
	// 580.159.04: docs/hardware), 26 on a T4 and 27 on a V100 (public listings with driver 535 and older). It is in the
	// steps in which a server's use counts, so that the first server of a node changes no plan.
	serverVRAM gpu.MiB = 96
	// unreadReserve or one part in unreadPart of the memory, the larger of them, is what
	// driver and firmware are taken to keep of a GPU of another model than those of
	// seenReserve, if NVML does not report it.
	unreadReserve gpu.MiB = 768
	unreadPart    gpu.MiB = 128
	// unreadDeviceReserve is the same of a MIG device. Driver 590 reports none.
	unreadDeviceReserve gpu.MiB = 64
	// leastMargin is kept with any reserved_vram: the most that an empty MIG device uses.
	leastMargin gpu.MiB = 26
)

// seenReserve is the most that driver and firmware were seen to keep of a model with
// this memory (public listings of nvidia-smi -q; V100 and A100: the total less what CUDA
// reports of it).
var seenReserve = []struct {
	model            string
	memory, reserved gpu.MiB
}{
	{"T4", 15360, 393}, {"V100", 32768, 258}, {"V100S", 32768, 258}, {"A100", 40960, 424},
	{"L40S", 46068, 609}, {"H100", 81559, 551}, {"H200", 143771, 700},
}

// unread is what driver and firmware are taken to keep of a GPU that was not asked.
func unread(g gpu.GPU) gpu.MiB {
	for word := range strings.FieldsFuncSeq(g.Name, func(r rune) bool { return r == ' ' || r == '-' }) {
		for _, s := range seenReserve {
			if s.model == word && s.memory == g.Memory {
				return s.reserved
			}
		}
	}
	return max(unreadReserve, (g.Memory+unreadPart-1)/unreadPart)
}

// Kept is the VRAM of a shared GPU that is in no budget.
type Kept struct {
	// Driver is what driver and firmware reserve. Assumed says that NVML did not report
	// it.
	Driver  gpu.MiB `json:"driver_mib"`
	Assumed bool    `json:"driver_assumed,omitempty"`
	// Server is the MPS server's; 0 without MPS.
	Server gpu.MiB `json:"mps_server_mib"`
	// Margin is reserved_vram, at least 26: what NVML lists of no process, 26 MiB at most on an idle
	// MIG device and 20 on a GPU with processes, and what the site wants to keep.
	Margin gpu.MiB `json:"margin_mib"`
}

// sum is all of it.
func (k Kept) sum() gpu.MiB { return k.Driver + k.Server + k.Margin }

func (k Kept) String() string {
	if k == (Kept{}) {
		return ""
	}
	assumed := ""
	if k.Assumed {
		assumed = ", assumed"
	}
	return fmt.Sprintf("%d (driver%s) + %d (MPS server) + %d (reserved_vram) "+
		"MiB", int64(k.Driver), assumed, int64(k.Server), int64(k.Margin))
}

// keptOf is what a candidate keeps if it is shared.
func keptOf(c candidate) Kept {
	k := Kept{Margin: max(leastMargin, c.settings.ReservedVRAM)}
	if c.mode != config.ModeTimeSlice {
		k.Server = max(serverVRAM, c.MPSServer)
	}
	switch {
	case c.Reserved != nil:
		k.Driver = *c.Reserved
	case c.parent != "":
		k.Driver, k.Assumed = unreadDeviceReserve, true
	default:
		k.Driver, k.Assumed = unread(c.GPU), true
	}
	return k
}

// Servers returns the VRAM that the plan keeps for the MPS server of each GPU that it
// shares.
func (p Plan) Servers() map[gpu.UUID]gpu.MiB {
	out := map[gpu.UUID]gpu.MiB{}
	for _, g := range p.GPUs {
		if g.Kept.Server > serverVRAM {
			out[g.UUID] = g.Kept.Server
		}
	}
	return out
}

// mostServerVRAM bounds what is kept for a server: it runs as the account of jobs, which could have
// it take more. 66 MiB are seen.
const mostServerVRAM gpu.MiB = 1024

// WithServers returns the inventory with the VRAM that MPS servers were seen to use, by
// GPU and MIG device, 1 GiB at most. Take the plan in force among them: a pool that grew again when
// the server ends would change HTCondor's slots with each server.
func WithServers(inv gpu.Inventory, seen ...map[gpu.UUID]gpu.MiB) gpu.Inventory {
	inv.GPUs = slices.Clone(inv.GPUs)
	for i := range inv.GPUs {
		g := &inv.GPUs[i]
		g.MIGDevices = slices.Clone(g.MIGDevices)
		for _, s := range seen {
			g.MPSServer = max(g.MPSServer, min(s[g.UUID], mostServerVRAM, g.Memory-1))
			for j := range g.MIGDevices {
				d := &g.MIGDevices[j]
				d.MPSServer = max(d.MPSServer, min(s[d.UUID], mostServerVRAM, d.Memory-1))
			}
		}
	}
	return inv
}

// poolOf is the VRAM given out in budgets: what keptOf leaves, in whole quanta.
func poolOf(c candidate, quantum gpu.MiB) gpu.MiB {
	return max(0, c.Memory-keptOf(c).sum()).Floor(quantum)
}

// tooSmall says why a candidate cannot be shared with any reserved_vram; empty if it
// can.
func tooSmall(c candidate, minimum, quantum gpu.MiB) string {
	k := keptOf(c)
	k.Margin = leastMargin
	if (c.Memory - k.sum()).Floor(quantum) >= minimum {
		return ""
	}
	return fmt.Sprintf("its %s less %s that gpuslot keeps do not hold one request_vram.minimum "+
		"(%s)", c.Memory, k.sum(), minimum)
}

package gpu

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"
)

// InventorySchema is the first field of every recorded inventory.
const InventorySchema = "gpuslot-inventory/1"

// Inventory is what one node has: its host part and its GPUs, in the order of
// their PCI bus ids.
type Inventory struct {
	// Schema is InventorySchema.
	Schema string `json:"schema"`
	// Sources names, for a composed inventory, where each value comes from.
	// Nothing reads it but people.
	Sources map[string]string `json:"sources,omitempty"`
	Host    Host              `json:"host"`
	// Driver is the NVIDIA driver's version ("550.163.01"); empty if unknown.
	Driver string `json:"driver,omitempty"`
	// CUDA is the driver's CUDA version ("12.4"); empty if unknown.
	CUDA string `json:"cuda,omitempty"`
	GPUs []GPU  `json:"gpus"`
}

// Host is the part of a node that is not a GPU.
type Host struct {
	// Name is the host's full name, matched by [host."…"] tables.
	Name string `json:"name"`
	// CPUs is the number of logical CPUs that HTCondor will count.
	CPUs int `json:"cpus"`
	// Memory is the main memory.
	Memory MiB `json:"memory_mib"`
}

// Encode prints the inventory as indented JSON with a final newline, in a form
// that DecodeInventory reads if Check has nothing to say.
func (inv Inventory) Encode() ([]byte, error) {
	if inv.GPUs == nil {
		inv.GPUs = []GPU{} // "none" is not "not told"
	}
	b, err := json.MarshalIndent(inv, "", "  ")
	return append(b, '\n'), err
}

// Sort orders the GPUs by PCI bus id, then UUID: the order in which "the first
// two GPUs" is the same after every reboot.
func (inv *Inventory) Sort() {
	sort.SliceStable(inv.GPUs, func(i, j int) bool {
		a, b := inv.GPUs[i], inv.GPUs[j]
		if a.PCI != b.PCI {
			return a.PCI.Before(b.PCI)
		}
		return a.UUID < b.UUID
	})
	for i := range inv.GPUs {
		ds := slices.Clone(inv.GPUs[i].MIGDevices) // nil stays nil: not read
		slices.SortFunc(ds, func(a, b MIGDevice) int {
			return cmp.Or(cmp.Compare(a.GPUInstance, b.GPUInstance), cmp.Compare(a.UUID, b.UUID))
		})
		inv.GPUs[i].MIGDevices = ds
	}
}

// GPU finds a GPU by its UUID.
func (inv Inventory) GPU(u UUID) (GPU, bool) {
	for _, g := range inv.GPUs {
		if g.UUID == u {
			return g, true
		}
	}
	return GPU{}, false
}

package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// maxInventoryBytes is far above any real node: 16 GPUs take about 8 kB.
const maxInventoryBytes = 4 << 20

// DecodeInventory reads a recorded inventory strictly: unknown fields, trailing
// text, duplicate UUIDs or bus addresses, and impossible sizes are errors. An
// inventory without GPUs is valid: such a node offers none.
func DecodeInventory(r io.Reader) (Inventory, error) {
	var inv Inventory
	b, err := io.ReadAll(io.LimitReader(r, maxInventoryBytes+1))
	if err != nil {
		return inv, err
	}
	if len(b) > maxInventoryBytes {
		return inv, fmt.Errorf("inventory is larger than %d bytes", maxInventoryBytes)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&inv); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return inv, fmt.Errorf("inventory ends too early after %d bytes; record it again with: gpuslot inventory --json", len(b))
		}
		return inv, fmt.Errorf("inventory: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return inv, fmt.Errorf("inventory: text after the closing brace at byte %d", d.InputOffset())
	}
	if err := inv.Check(); err != nil {
		return inv, err
	}
	inv.Sort()
	return inv, nil
}

// ReadInventory reads the file that "gpuslot inventory --json" wrote.
func ReadInventory(path string) (Inventory, error) {
	f, err := os.Open(path)
	if err != nil {
		return Inventory{}, fmt.Errorf("read inventory: %w", err)
	}
	defer f.Close()
	inv, err := DecodeInventory(f)
	if err != nil {
		return inv, fmt.Errorf("%s: %w", path, err)
	}
	return inv, nil
}

// Encode prints the inventory as indented JSON with a final newline.
func (inv Inventory) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(inv, "", "  ")
	return append(b, '\n'), err
}

// Sort orders the GPUs by PCI bus id, then UUID: the order in which "the first
// two GPUs" is the same after every reboot.
func (inv *Inventory) Sort() {
	sort.SliceStable(inv.GPUs, func(i, j int) bool {
		a, b := inv.GPUs[i], inv.GPUs[j]
		if a.PCI != b.PCI {
			return a.PCI < b.PCI
		}
		return a.UUID < b.UUID
	})
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

// Bounds beyond which a number is a mistake, not a machine: many times what
// the largest GPU (288 GiB) and the largest servers have.
const (
	MaxMemory     MiB = 4 << 20 // 4 TiB, of one GPU
	MaxHostMemory MiB = 1 << 30 // 1 PiB
	MaxCPUs           = 1 << 16
	MaxGPUs           = 256
)

// Check reports everything that cannot be true of a node, all at once.
func (inv Inventory) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("inventory: "+format, args...)) }
	if inv.Schema != InventorySchema {
		bad("schema is %q; this gpuslot reads %q", clip(inv.Schema), InventorySchema)
	}
	if inv.Host.CPUs < 1 || inv.Host.CPUs > MaxCPUs {
		bad("host.cpus is %d; a node has 1 to %d", inv.Host.CPUs, MaxCPUs)
	}
	if inv.Host.Memory < 1 || inv.Host.Memory > MaxHostMemory {
		bad("host.memory_mib is %d; a node has 1 to %d", int64(inv.Host.Memory), int64(MaxHostMemory))
	}
	if len(inv.GPUs) > MaxGPUs {
		bad("%d GPUs; a node has at most %d", len(inv.GPUs), MaxGPUs)
		return errors.Join(errs...)
	}
	uuids, addresses := map[UUID]int{}, map[PCIBusID]int{}
	for i, g := range inv.GPUs {
		switch {
		case g.UUID == "":
			bad("gpus[%d] has no uuid", i)
		case g.UUID.IsMIG():
			bad("gpus[%d]: %s is a MIG device; list the GPU it is part of", i, g.UUID)
		}
		if first, seen := uuids[g.UUID]; seen && g.UUID != "" {
			bad("gpus[%d] and gpus[%d] have the same uuid %s", first, i, g.UUID)
		}
		if first, seen := addresses[g.PCI]; seen && g.PCI != "" {
			bad("gpus[%d] and gpus[%d] have the same pci_bus_id %s", first, i, g.PCI)
		}
		uuids[g.UUID], addresses[g.PCI] = i, i
		if g.PCI == "" {
			bad("gpus[%d] (%s) has no pci_bus_id", i, g.UUID)
		}
		if g.Name == "" {
			bad("gpus[%d] (%s) has no name", i, g.UUID)
		}
		if g.Memory < 1 || g.Memory > MaxMemory {
			bad("gpus[%d] (%s): memory_mib is %d; a GPU has 1 to %d", i, g.UUID, int64(g.Memory), int64(MaxMemory))
		}
	}
	return errors.Join(errs...)
}

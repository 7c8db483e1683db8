package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Bounds beyond which a number is a mistake, not a machine: many times what
// the largest GPU (288 GiB) and the largest servers have.
const (
	MaxMemory     MiB = 4 << 20 // 4 TiB, of one GPU
	MaxHostMemory MiB = 1 << 30 // 1 PiB
	MaxCPUs           = 1 << 16
	maxGPUs           = 256

	maxMultiprocessors = 1 << 12
	maxMIGDevices      = 64 // NVML's header: at most 7 GPU instances, 8 compute instances each
)

// Names and versions end in HTCondor's configuration, in ads and in labels, so
// they must be what they seem.

// isHostName: letters, digits and "._-" between a letter or digit at each end.
func isHostName(s string) bool {
	return s != "" && len(s) <= 253 && isAlphanumeric(s[0]) && isAlphanumeric(s[len(s)-1]) &&
		all(s, func(c byte) bool { return isAlphanumeric(c) || c == '.' || c == '_' || c == '-' })
}

// isVersion: two to four numbers of at most six digits, joined by dots.
func isVersion(s string) bool {
	numbers := strings.Split(s, ".")
	for _, n := range numbers {
		if n == "" || len(n) > 6 || !all(n, isDigit) {
			return false
		}
	}
	return len(numbers) >= 2 && len(numbers) <= 4
}

// No regexp here: compiling one takes longer than all else that
// gpuslot-condor does before a job starts.

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool        { return '0' <= c && c <= '9' }
func isLower(c byte) bool        { return 'a' <= c && c <= 'z' }
func isAlphanumeric(c byte) bool { return isDigit(c) || isLower(c) || 'A' <= c && c <= 'Z' }

// Check reports everything that cannot be true of a node, all at once.
func (inv Inventory) Check() error {
	c := checker{}
	c.host(inv)
	if len(inv.GPUs) > maxGPUs {
		c.bad("%d gpus; a node has at most %d", len(inv.GPUs), maxGPUs)
		return errors.Join(c.errs...)
	}
	for i, g := range inv.GPUs {
		c.gpu(i, g)
	}
	c.twins(inv.GPUs)
	return errors.Join(c.errs...)
}

// checker gathers errors.
type checker struct{ errs []error }

func (c *checker) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("inventory: "+format, args...))
}

func (c *checker) host(inv Inventory) {
	if inv.Schema != InventorySchema {
		c.bad("schema is %q; this gpuslot reads %q", foreign.Clip(inv.Schema), InventorySchema)
	}
	if h := inv.Host.Name; h != "" && !isHostName(h) {
		c.bad("host.name is %q; a host name has letters, digits, dots and hyphens", foreign.Clip(h))
	}
	if n := inv.Host.CPUs; n < 1 || n > MaxCPUs {
		c.bad("host.cpus is %d; a node has 1 to %d", n, MaxCPUs)
	}
	if m := inv.Host.Memory; m < 1 || m > MaxHostMemory {
		c.bad("host.memory_mib is %d; a node has 1 to %d", int64(m), int64(MaxHostMemory))
	}
	if v := inv.Driver; v != "" && !isVersion(v) {
		c.bad("driver is %q; write a version such as 550.163.01", foreign.Clip(v))
	}
	if v := inv.CUDA; v != "" && !isVersion(v) {
		c.bad("cuda is %q; write a version such as 12.4", foreign.Clip(v))
	}
}

// gpu checks one GPU by itself.
func (c *checker) gpu(i int, g GPU) {
	at := fmt.Sprintf("gpus[%d]", i)
	switch {
	case g.UUID == "":
		c.bad("%s has no uuid", at)
	case g.UUID.IsMIG():
		c.bad("%s: %s is a MIG device; list the GPU it is part of", at, g.UUID)
	default:
		at += " (" + g.UUID.String() + ")"
	}
	if g.Index < 0 || g.Index >= maxGPUs {
		c.bad("%s: index is %d; NVML counts from 0", at, g.Index)
	}
	if !isName(g.Name) {
		c.bad("%s: name is %q; write the product name as nvidia-smi -L prints it", at, foreign.Clip(g.Name))
	}
	if g.PCI == "" {
		c.bad("%s has no pci_bus_id", at)
	}
	if g.Memory < 1 || g.Memory > MaxMemory {
		c.bad("%s: memory_mib is %d; a GPU has 1 to %d", at, int64(g.Memory), int64(MaxMemory))
	}
	c.parts(at, g.Reserved, g.MPSServer, g.Memory)
	if g.Capability.Major < 1 {
		c.bad("%s has no compute_capability", at)
	}
	if n := g.Multiprocessors; n < 0 || n > maxMultiprocessors {
		c.bad("%s: multiprocessors is %d; a GPU has 1 to %d", at, n, maxMultiprocessors)
	}
	for _, t := range g.Unusual {
		if !slices.Contains(AllTraits(), t) {
			c.bad("%s: unusual has %q; write some of %q", at, foreign.Clip(string(t)), AllTraits())
		}
	}
	if g.MIGEnabled && !g.MIGCapable {
		c.bad("%s has mig_enabled but not mig_capable", at)
	}
	c.devices(at, g)
}

// devices checks the MIG devices of one GPU.
func (c *checker) devices(at string, g GPU) {
	if len(g.MIGDevices) > 0 && !g.MIGEnabled {
		c.bad("%s has mig_devices but not mig_enabled", at)
	}
	if len(g.MIGDevices) > maxMIGDevices {
		c.bad("%s has %d mig_devices; a GPU has at most %d", at, len(g.MIGDevices), maxMIGDevices)
		return
	}
	for i, d := range g.MIGDevices {
		at := fmt.Sprintf("%s: mig_devices[%d]", at, i)
		if !d.UUID.IsMIG() {
			c.bad("%s: uuid is %q; write the MIG device's, which starts with MIG-", at, foreign.Clip(string(d.UUID)))
		}
		if p, err := ParseProfileName(d.Profile); err != nil || p.String() != d.Profile {
			c.bad("%s: profile is %q; write it as nvidia-smi prints it, such as 3g.20gb", at, foreign.Clip(d.Profile))
		}
		if d.Memory < 1 || d.Memory > g.Memory {
			c.bad("%s: memory_mib is %d; its GPU has %d", at, int64(d.Memory), int64(g.Memory))
		}
		c.parts(at, d.Reserved, d.MPSServer, d.Memory)
		if n := d.Multiprocessors; n < 0 || n > maxMultiprocessors {
			c.bad("%s: multiprocessors is %d; a GPU has 1 to %d", at, n, maxMultiprocessors)
		}
		if d.Start != nil && (*d.Start < 0 || *d.Start >= maxMIGDevices) {
			c.bad("%s: start is %d; the grid counts from 0", at, *d.Start)
		}
		if d.Owner != "" && d.Owner != Ours && d.Owner != Foreign {
			c.bad("%s: owner is %q; it is %q or %q", at, foreign.Clip(string(d.Owner)), Ours, Foreign)
		}
		if d.GPUInstance < 0 {
			c.bad("%s: gpu_instance is %d; the driver counts from 0", at, d.GPUInstance)
		}
	}
}

// parts checks what of a device's memory is known to be in use.
func (c *checker) parts(at string, reserved *MiB, server, memory MiB) {
	if server < 0 || server > memory {
		c.bad("%s: mps_server_mib is %d; the device has %s", at, int64(server), memory)
	}
	if reserved != nil && (*reserved < 0 || *reserved >= memory) {
		c.bad("%s: reserved_mib is %d; the driver leaves some of its %s", at, int64(*reserved), memory)
	}
}

// isName accepts what NVML can return: up to 95 printable characters
// (NVML_DEVICE_NAME_V2_BUFFER_SIZE is 96, with the final zero).
func isName(s string) bool {
	printable := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	return s != "" && len(s) < 96 && printable && s == strings.TrimSpace(s)
}

// twins finds GPUs that cannot both exist.
func (c *checker) twins(gpus []GPU) {
	uuids, addresses, indexes := map[UUID]int{}, map[PCIBusID]int{}, map[int]int{}
	for i, g := range gpus {
		if first, seen := uuids[g.UUID]; seen && g.UUID != "" {
			c.bad("gpus[%d] and gpus[%d] have the same uuid %s", first, i, g.UUID)
		}
		if first, seen := addresses[g.PCI]; seen && g.PCI != "" {
			c.bad("gpus[%d] and gpus[%d] have the same pci_bus_id %s", first, i, g.PCI)
		}
		if first, seen := indexes[g.Index]; seen {
			c.bad("gpus[%d] and gpus[%d] have the same index %d", first, i, g.Index)
		}
		uuids[g.UUID], addresses[g.PCI], indexes[g.Index] = i, i, i
		for _, d := range g.MIGDevices {
			if _, seen := uuids[d.UUID]; seen {
				c.bad("two MIG devices have the same uuid %s", d.UUID)
			}
			uuids[d.UUID] = i
		}
	}
}

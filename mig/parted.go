package mig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// partedVersion is the version of mig-parted's files that gpuslot reads and writes.
const partedVersion = "v1"

// Parted is a configuration file of NVIDIA's mig-parted: named configurations,
// each a list of what its GPUs should have. gpuslot reads and writes the file;
// it does not use mig-parted, which wipes a GPU to change one instance.
type Parted struct {
	// Configs are the configurations by name ("all-1g.5gb").
	Configs map[string][]PartedEntry
}

// PartedEntry is what some GPUs of a node should have.
type PartedEntry struct {
	// Line is where the entry begins in the file that was read; 0 in one that was not.
	Line int
	// Filter are the PCI ids that the entry is for; none means every GPU.
	Filter []gpu.PCIDevice
	// Devices are NVML's indices of the GPUs; nil means "all".
	Devices []int
	// Enabled is the wanted MIG mode.
	Enabled bool
	// Instances are the wanted counts by profile; there is no placement in these files.
	Instances map[string]int
}

// Names are the configurations of the file, sorted.
func (p Parted) Names() []string {
	return slices.Sorted(maps.Keys(p.Configs))
}

// Config is the configuration of that name; its error lists those there are.
func (p Parted) Config(name string) ([]PartedEntry, error) {
	entries, ok := p.Configs[name]
	if !ok {
		return nil, fmt.Errorf("there is no configuration %q; the file has %s", foreign.Clip(name),
			strings.Join(p.Names(), ", "))
	}
	return entries, nil
}

// EntryFor is the entry of a configuration that is for one GPU, by its NVML
// index and PCI ids; ok is false where none is. Two entries for one GPU are an
// error: mig-parted would apply both, one after the other.
func EntryFor(entries []PartedEntry, index int, device gpu.PCIDevice) (entry PartedEntry, ok bool, err error) {
	for _, e := range entries {
		if !e.isFor(index, device) {
			continue
		}
		if ok {
			return PartedEntry{}, false, fmt.Errorf("GPU %d (%s) is meant by two entries, in line %d and line %d; "+
				"narrow their devices or device-filter", index, device, entry.Line, e.Line)
		}
		entry, ok = e, true
	}
	return entry, ok, nil
}

func (e PartedEntry) isFor(index int, device gpu.PCIDevice) bool {
	return (e.Filter == nil || slices.Contains(e.Filter, device)) &&
		(e.Devices == nil || slices.Contains(e.Devices, index))
}

// profileNames are the profiles of an entry, sorted.
func (e PartedEntry) profileNames() []string {
	return slices.Sorted(maps.Keys(e.Instances))
}

// parseInstanceProfile reads the name of a GPU instance's profile. A name with
// "c" ("1c.3g.20gb") splits the instance, which gpuslot does not do.
func parseInstanceProfile(s string) (string, error) {
	if slices, _, ok := strings.Cut(s, "c."); ok && slices != "" && strings.Trim(slices, "0123456789") == "" {
		return "", fmt.Errorf("%q splits a GPU instance; "+
			"gpuslot gives each one compute instance with all its multiprocessors: name the GPU instance alone", foreign.Clip(s))
	}
	p, err := gpu.ParseProfileName(s)
	return p.String(), err
}

// Text is the entry's layout as ParseWant reads it: "1g.5gb*2,3g.20gb*1".
func (e PartedEntry) Text() string {
	var words []string
	for _, name := range e.profileNames() {
		words = append(words, fmt.Sprintf("%s*%d", name, e.Instances[name]))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ",")
}

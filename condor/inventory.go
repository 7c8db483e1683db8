package condor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// NoInventory is what condor_gpu_discovery prints where there is no GPU: a
// valid answer with which the startd starts and offers none.
const NoInventory = "DetectedGPUs=0\n"

// InventoryAds is what MACHINE_RESOURCE_INVENTORY_GPUs must print: the ids,
// those of a shared GPU once per share, and the properties of each GPU in the
// form of "condor_gpu_discovery -properties". DeviceUuid decides what a job
// sees and which devices are hidden from it.
func InventoryAds(n Node) []byte { return inventoryAds(n, slotTypes(n)) }

func inventoryAds(n Node, types []slotType) []byte {
	if len(n.Devices) == 0 {
		return []byte(NoInventory)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "DetectedGPUs=%s\n", classad.Quote(strings.Join(resourceIDs(n.Devices, n.elastic()), ", ")))
	common, own := properties(n)
	if len(common) > 0 {
		fmt.Fprintf(&b, "Common=[ %s ]\n", strings.Join(common, " "))
	}
	for i, d := range n.Devices {
		fmt.Fprintf(&b, "GPU_%d=[ id=%s; DeviceUuid=%s; DevicePciBusId=%s; GPUIndex=%d; %s]\n", i,
			classad.Quote(string(d.UUID)), classad.Quote(d.deviceUUID()), classad.Quote(string(d.PCI)), d.Index,
			strings.Join(slices.Concat(d.typeProperties(types), d.instanceProperties(), own[i], []string{""}), " "))
	}
	return []byte(b.String())
}

// resourceIDs lists each id as often as jobs may hold it, packed.
func resourceIDs(devices, elastic []Device) []string {
	var ids []string
	for _, d := range devices {
		for range d.copies() {
			ids = append(ids, string(d.UUID))
		}
	}
	for _, d := range elastic {
		ids = append(ids, string(d.UUID)) // once more, for whole jobs, in their order
	}
	return ids
}

// copies is how many jobs may hold the GPU at once.
func (d Device) copies() int {
	if !d.Shared {
		return 1
	}
	return d.Shares
}

// properties are the attributes that users and the gpus_minimum_… submit
// commands ask for: in Common if they are the same on every GPU.
func properties(n Node) (common []string, own [][]string) {
	own = make([][]string, len(n.Devices))
	for _, of := range []func(Device) string{
		func(d Device) string { return "Capability=" + d.Capability.String() + ";" },
		func(d Device) string { return "DeviceName=" + classad.Quote(d.Name) + ";" },
		func(Device) string { return cudaProperties(n.CUDA) },
		func(d Device) string { return "GlobalMemoryMb=" + strconv.FormatInt(int64(d.Memory), 10) + ";" },
	} {
		values := make([]string, len(n.Devices))
		same := true
		for i, d := range n.Devices {
			values[i] = of(d)
			same = same && values[i] == values[0]
		}
		switch {
		case values[0] == "": // unknown is left out, and known of all GPUs or of none
		case same:
			common = append(common, values[0])
		default:
			for i := range own {
				own[i] = append(own[i], values[i])
			}
		}
	}
	return common, own
}

// typeProperties name the slot type of a device with a slot of its own.
func (d Device) typeProperties(types []slotType) []string {
	number, ok := typeOf(types, d.UUID)
	if !ok {
		return nil
	}
	return []string{fmt.Sprintf("%s=%d;", typeProperty, number)}
}

// deviceUUID decides which device nodes HTCondor leaves to a job: of a place the
// GPU's own, whatever MIG device is there.
func (d Device) deviceUUID() string {
	if d.Place != "" {
		return d.Parent.Bare()
	}
	return d.UUID.Bare()
}

// instanceProperties are what tells MIG devices apart: jobs choose with
// require_gpus = MIGProfile == "3g.20gb". ComputeUnits is HTCondor's word for SMs.
func (d Device) instanceProperties() []string {
	if d.Profile == "" {
		return nil
	}
	own := []string{"MIGProfile=" + classad.Quote(d.Profile) + ";", "MIGParent=" + classad.Quote(string(d.Parent)) + ";"}
	if d.Place != "" {
		own = append(own, "MIGPlace="+classad.Quote(d.Place)+";")
	}
	if d.Multiprocessors > 0 {
		own = append(own, fmt.Sprintf("ComputeUnits=%d;", d.Multiprocessors))
	}
	return own
}

// cudaProperties are the driver's CUDA version as HTCondor knows it twice: as
// a number with a decimal, and as the integer of gpus_minimum_runtime.
func cudaProperties(version string) string {
	a, b, _ := strings.Cut(version, ".")
	major, errMajor := strconv.Atoi(a)
	minor, errMinor := strconv.Atoi(b)
	if errMajor != nil || errMinor != nil || major < 1 || minor < 0 {
		return ""
	}
	return fmt.Sprintf("DriverVersion=%d.%d; MaxSupportedVersion=%d;", major, minor, 1000*major+10*minor)
}

// InventoryUUIDs reads the GPUs out of what InventoryAds printed, each once,
// in order. Ids that are no UUIDs are left out: they cannot be ours.
func InventoryUUIDs(ads []byte) []gpu.UUID {
	var uuids []gpu.UUID
	seen := map[gpu.UUID]bool{}
	for line := range strings.Lines(string(ads)) {
		ad, err := classad.Parse(line)
		if err != nil {
			continue
		}
		ids, _ := ad.StringList("DetectedGPUs")
		for _, id := range ids {
			u, err := gpu.ParseUUID(id)
			if err == nil && !seen[u] {
				seen[u] = true
				uuids = append(uuids, u)
			}
		}
	}
	return uuids
}

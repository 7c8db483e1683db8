package condor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

func TestIsStartd(t *testing.T) {
	for name, want := range map[string]bool{
		"gpu5a1e0c11": true, "gpu5a1e0c115be411f19c2d0242ac120002": true,
		"gpu5a1e0c1": false, "gpu5a1e0c112": false, "gpu": false, "": false, "gpu5A1E0C11": false, "gpu5a1e0c1g": false,
		"cpu5a1e0c11": false, "5a1e0c11": false, "gpu5a1e0c115be411f19c2d0242ac12000": false,
	} {
		if got := IsStartd(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// TestNamesOfStartds: a GPU's startd has as many digits as make it the node's only one of this
// name, and the MIG devices of a GPU have the same.
func TestNamesOfStartds(t *testing.T) {
	const one, like, other = "5a1e0c11-5be4-11f1-9c2d-0242ac120001", "5a1e0c11-5be4-11f1-9c2d-0242ac120002", "5a1e0c12-5be4-11f1-9c2d-0242ac120003"
	whole := func(u string) Device { return Device{UUID: gpu.UUID("GPU-" + u)} }
	instance := func(u, parent string) Device {
		return Device{UUID: gpu.UUID("MIG-" + u), Parent: gpu.UUID("GPU-" + parent)}
	}
	for name, c := range map[string]struct {
		together bool
		devices  []Device
		want     []string
	}{
		"HTCondor's own":      {true, []Device{whole(one), whole(other)}, []string{""}},
		"each":                {false, []Device{whole(one), whole(other)}, []string{"", "gpu5a1e0c11", "gpu5a1e0c12"}},
		"two that look alike": {false, []Device{whole(one), whole(like), whole(other)}, []string{"", "gpu5a1e0c115be411f19c2d0242ac120001", "gpu5a1e0c115be411f19c2d0242ac120002", "gpu5a1e0c12"}},
		"MIG devices":         {false, []Device{instance(other, one), instance(like, one)}, []string{"", "gpu5a1e0c11"}},
		"beside a GPU":        {false, []Device{instance(other, one), whole(like)}, []string{"", "gpu5a1e0c115be411f19c2d0242ac120001", "gpu5a1e0c115be411f19c2d0242ac120002"}},
	} {
		if d := cmp.Diff(c.want, startdNames(Node{PerGPU: !c.together, Devices: c.devices})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestDiskOfStartds: each startd has the part of the disk that it has of the CPUs, and one percent at least.
func TestDiskOfStartds(t *testing.T) {
	for cpus, want := range map[int]int{96: 100, 48: 50, 11: 11, 0: 1} {
		types := apart(Node{CPUs: 96}, []slotType{{share: Share{CPUs: cpus}}})
		if got := types[0].disk; got != want {
			t.Errorf("%d of 96 CPUs: %d %% of the disk, want %d", cpus, got, want)
		}
	}
}

func TestStartdOfSlot(t *testing.T) {
	n := Node{Inventory: "/run/gpuslot/condor/inventory.ad"}
	for slot, want := range map[string][3]string{
		"slot1_2@wn1":               {"slot1_2", "", "/run/gpuslot/condor/inventory.ad"},
		"slot1":                     {"slot1", "", "/run/gpuslot/condor/inventory.ad"},
		"slot1_2@gpu5a1e0c11@wn1":   {"slot1_2@gpu5a1e0c11", "gpu5a1e0c11", "/run/gpuslot/condor/inventory-gpu5a1e0c11.ad"},
		"slot1_2@gpunode1@gpunode1": {"slot1_2", "", "/run/gpuslot/condor/inventory.ad"},
	} {
		startd := StartdOf(slot)
		if got := [3]string{SlotName(slot), startd, n.InventoryOf(startd)}; got != want {
			t.Errorf("%s: %q", slot, got)
		}
	}
	for name, want := range map[string]string{"": "STARTD", "gpu5a1e0c11": "STARTD_GPU5A1E0C11"} {
		if got := (Startd{Name: name}).Daemon(); got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
	if env := (Startd{}).Environment(); env != nil {
		t.Errorf("HTCondor's own: %q", env)
	}
	if d := cmp.Diff([]string{"_CONDOR_STARTD_ADDRESS_FILE=$(STARTD_GPU5A1E0C11_ADDRESS_FILE)"}, Startd{Name: "gpu5a1e0c11"}.Environment()); d != "" {
		t.Error(d)
	}
}

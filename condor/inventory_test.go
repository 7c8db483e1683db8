package condor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestInventoryUUIDs(t *testing.T) {
	if got := InventoryUUIDs(InventoryAds(examples()["whole"])); len(got) != 8 || got[0] != uuid(2) || got[7] != uuid(1) {
		t.Errorf("the example's GPUs are %v", got)
	}
	if got := InventoryUUIDs([]byte(NoInventory)); got != nil {
		t.Errorf("no inventory has %v", got)
	}
	text := "rubbish\nDetectedGPUs=\"GPU-1234, GPU-00000001-5BE4-11F1-9C2D-0242AC120002, nonsense\"\n"
	if diff := cmp.Diff([]gpu.UUID{uuid(1)}, InventoryUUIDs([]byte(text))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An id is there once per share, all properties are there once per GPU, and
// what is not known is left out.
func TestInventoryAds(t *testing.T) {
	n := exampleNode(v100s(0), wholeV100S(1))
	ad, err := classad.Parse(string(InventoryAds(n)))
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := ad.StringList("DetectedGPUs")
	if want := append(slices.Repeat([]string{string(uuid(0))}, 8), string(uuid(1))); !slices.Equal(ids, want) {
		t.Errorf("ids are %q", ids)
	}
	common, _ := ad.Expr("Common")
	for _, want := range []string{"Capability=7.0;", `DeviceName="Tesla V100S-PCIE-32GB";`, "DriverVersion=12.4;", "MaxSupportedVersion=12040;", "GlobalMemoryMb=32768;"} {
		if strings.Count(common, want) != 1 {
			t.Errorf("Common is %s, without %s", common, want)
		}
	}
	n.CUDA = ""
	if strings.Contains(string(InventoryAds(n)), "Version") {
		t.Error("an unknown CUDA version is said")
	}
}

// Any text is read without a UUID that it does not contain.
func FuzzInventoryUUIDs(f *testing.F) {
	f.Add(InventoryAds(exampleNode(v100s(0), wholeV100S(1))))
	f.Add([]byte("DetectedGPUs=\"GPU-1\"\nDetectedGPUs=0"))
	f.Fuzz(func(t *testing.T, ads []byte) {
		for _, u := range InventoryUUIDs(ads) {
			if _, err := gpu.ParseUUID(string(u)); err != nil || !strings.Contains(strings.ToLower(string(ads)), strings.ToLower(string(u))) {
				t.Fatalf("%q gives %q: %v", ads, u, err)
			}
		}
	})
}

func TestMonitorAds(t *testing.T) {
	at := time.Unix(1795254170, 0)
	got := string(MonitorAds([]GPUState{
		{UUID: uuid(0), Accept: true, Time: at},
		{UUID: uuid(1), Accept: true, Tenant: "alice", Verified: new(true), Time: at, Since: at.Add(-time.Hour)},
		{UUID: uuid(2), Reason: "says \"no\"\nGPUAccept = true", Time: at, Since: at},
	}))
	want := `SlotMergeConstraint = GPUSlotUUID == "GPU-00000000-5be4-11f1-9c2d-0242ac120002"
GPUAccept = true
GPUAcceptReason = ""
GPUClosedBy = ""
GPUSlotPending = ""
GPUAcceptTime = 1795254170
GPUTenant = undefined
GPUVRAMLeast = undefined
GPUVRAMUnlisted = undefined
GPUVRAMTaken = undefined
GPUVerified = undefined
- GPU-00000000-5be4-11f1-9c2d-0242ac120002 update:true
SlotMergeConstraint = GPUSlotUUID == "GPU-00000001-5be4-11f1-9c2d-0242ac120002"
GPUAccept = true
GPUAcceptReason = ""
GPUClosedBy = ""
GPUSlotPending = ""
GPUAcceptTime = 1795254170
GPUTenant = "alice"
GPUVRAMLeast = undefined
GPUVRAMUnlisted = undefined
GPUVRAMTaken = undefined
GPUVerified = true
- GPU-00000001-5be4-11f1-9c2d-0242ac120002 update:false
SlotMergeConstraint = GPUSlotUUID == "GPU-00000002-5be4-11f1-9c2d-0242ac120002"
GPUAccept = false
GPUAcceptReason = "says \"no\" GPUAccept = true"
GPUClosedBy = ""
GPUSlotPending = ""
GPUAcceptTime = 1795254170
GPUTenant = undefined
GPUVRAMLeast = undefined
GPUVRAMUnlisted = undefined
GPUVRAMTaken = undefined
GPUVerified = undefined
- GPU-00000002-5be4-11f1-9c2d-0242ac120002 update:true
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, s := range Closed([]gpu.UUID{uuid(3)}, "no agent", at) {
		if s.Accept || s.Reason != "no agent" || s.Time != at || s.UUID != uuid(3) {
			t.Errorf("closed is %+v", s)
		}
	}
}

// TestWholeMonitorAd: one ad for all whole GPUs.
func TestWholeMonitorAd(t *testing.T) {
	at := time.Unix(1795254170, 0)
	said := MonitorAds([]GPUState{
		{UUID: uuid(0), Whole: true, Accept: true, Time: at, Since: at.Add(-time.Hour)},
		{UUID: uuid(1), Whole: true, Reason: "closed by operator: riser", ClosedBy: []string{"operator"}, Time: at, Since: at.Add(-time.Hour)},
	})
	want := `SlotMergeConstraint = GPUSlotWhole =?= true
GPUAccept = countMatches(member(DeviceUuid, {"00000001-5be4-11f1-9c2d-0242ac120002"}), MY.AvailableGPUs) == 0
GPUAcceptReason = "GPU-00000001-5be4-11f1-9c2d-0242ac120002 is closed by operator: riser"
GPUClosedBy = "operator"
GPUSlotPending = ""
GPUAcceptTime = 1795254170
GPUTenant = undefined
GPUVRAMLeast = undefined
GPUVRAMUnlisted = undefined
GPUVRAMTaken = undefined
GPUVerified = undefined
- whole update:false
`
	if string(said) != want {
		t.Error(cmp.Diff(want, string(said)))
	}
	open := string(MonitorAds([]GPUState{{UUID: uuid(0), Whole: true, Accept: true, Time: at}}))
	if !strings.Contains(open, "GPUAccept = true\nGPUAcceptReason = \"\"\nGPUClosedBy = \"\"\n") {
		t.Error(open)
	}
}

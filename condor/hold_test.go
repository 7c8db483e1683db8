package condor

import (
	"testing"
	"time"
)

func TestParseSlot(t *testing.T) {
	for name, want := range map[string][2]int{
		"slot1_2": {1, 2}, "slot12_34@wn1.example.org": {12, 34}, "slot1_2@gpu0@wn1": {1, 2}, "vm1_2@wn1": {1, 2}, "data101_3": {101, 3},
		"slot1": {}, "slot_2": {}, "slot1_": {}, "slot0_1": {}, "1_2": {}, "": {}, "slot1_2_3": {}, "slot-1_2": {},
		"slot1_0": {}, "slot1_-1": {}, "slot1_1": {1, 1}, "slot9999999999999999999_1": {}, "slot1_9999999999999999999": {}, "slotx_1": {},
	} {
		slot, dynamic, err := ParseSlot(name)
		if (err == nil) != (want[0] > 0) || err == nil && [2]int{slot, dynamic} != want {
			t.Errorf("ParseSlot(%q) = %d, %d, %v", name, slot, dynamic, err)
		}
	}
}

func TestHoldAds(t *testing.T) {
	got := string(HoldAds([]Hold{
		{SlotID: 5, DSlotID: 6, JobID: `9.0" || true || "x\`, Code: 76, Reason: "of no job"},
		{SlotID: 1, DSlotID: 2, JobID: "7.0", Code: 76, Reason: "used \"2\" MiB\nGPUAccept = true", Since: time.Unix(1000, 5)},
		{SlotID: 3, DSlotID: 4, JobID: "8.1", Since: time.Unix(2000, 0)},
	}))
	want := `SlotMergeConstraint = SlotID == 1 && DSlotID == 2 && JobId == "7.0" && JobStart <= 1000
GPUSlotHoldReason = "used \"2\" MiB GPUAccept = true"
GPUSlotHoldCode = 76
- hold_slot1_2 update:true
SlotMergeConstraint = SlotID == 3 && DSlotID == 4 && JobId == "8.1" && JobStart <= 2000
GPUSlotHoldReason = undefined
GPUSlotHoldCode = undefined
- hold_slot3_4 update:true
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

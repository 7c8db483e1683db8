package condor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// Hold is a running job that the startd shall put on hold.
type Hold struct {
	// SlotID and DSlotID are those of its dynamic slot; JobID is "cluster.proc".
	SlotID, DSlotID int
	JobID           string
	// Code is the hold's subcode, Reason its sentence.
	Code   int
	Reason string
	// Since is when it was decided.
	Since time.Time
}

// letters of a slot's prefix: "slot", or the site's STARTD_RESOURCE_PREFIX.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// ParseSlot reads "slot1_2", or "slot1_2@host".
func ParseSlot(name string) (slotID, dSlotID int, err error) {
	short, _, _ := strings.Cut(name, "@")
	numbers := strings.TrimLeft(short, letters)
	left, right, _ := strings.Cut(numbers, "_") // no number is right of what is not there
	slotID, errLeft := strconv.Atoi(left)
	dSlotID, errRight := strconv.Atoi(right)
	if numbers == short || errLeft != nil || errRight != nil || slotID < 1 || dSlotID < 1 {
		return 0, 0, fmt.Errorf("%q is not the name of a dynamic slot", name)
	}
	return slotID, dSlotID, nil
}

// HoldAds prints one ad per job for STARTD_CRON. The job's id is part of the
// constraint, because such an ad stays in the startd after the job has gone, and so
// is its start: the job may be back in the same slot before the ad is taken back.
// An empty Reason takes an earlier ad of the same job back. An id of other characters is
// no job's, and has no ad.
func HoldAds(holds []Hold) []byte {
	var out []byte
	for _, h := range holds {
		if strings.Trim(h.JobID, "0123456789.") != "" {
			continue
		}
		var ad classad.Ad
		ad.SetExpr("SlotMergeConstraint", fmt.Sprintf("SlotID == %d && DSlotID == %d && JobId == %s && JobStart <= %d",
			h.SlotID, h.DSlotID, classad.Quote(h.JobID), h.Since.Unix()))
		ad.SetUndefined("GPUSlotHoldReason")
		ad.SetUndefined("GPUSlotHoldCode")
		if h.Reason != "" {
			ad.SetString("GPUSlotHoldReason", h.Reason)
			ad.SetInt("GPUSlotHoldCode", int64(h.Code))
		}
		out = append(out, ad.Print()...)
		out = append(out, fmt.Sprintf("- hold_slot%d_%d update:true\n", h.SlotID, h.DSlotID)...)
	}
	return out
}

// holdKnobs are the startd's policy with the agent's word added: the knob, and
// its value. $(PREEMPT) and the like stand for the site's, wherever it says so.
func holdKnobs(reason, code string) [][2]string {
	return [][2]string{
		{"PREEMPT", "$(GPUSLOT_HOLD) || ($(PREEMPT:false))"},
		{"WANT_SUSPEND", "!$(GPUSLOT_HOLD) && ($(WANT_SUSPEND:false))"},
		{"MAXJOBRETIREMENTTIME", "ifThenElse($(GPUSLOT_HOLD), 0, $(MAXJOBRETIREMENTTIME:0))"},
		{"WANT_HOLD", "$(GPUSLOT_HOLD) || ($(WANT_HOLD:false))"},
		{"WANT_HOLD_REASON", "ifThenElse($(GPUSLOT_HOLD), " + reason + ", $(WANT_HOLD_REASON:undefined))"},
		{"WANT_HOLD_SUBCODE", "ifThenElse($(GPUSLOT_HOLD), " + code + ", $(WANT_HOLD_SUBCODE:undefined))"},
	}
}

// holdPolicy is what the slot types of shared GPUs have in common.
func (t *text) holdPolicy(g Growth) {
	t.comment("A job that breaks its budget is held with the agent's reason. The site's own PREEMPT and WANT_HOLD " +
		"apply too.")
	hold, reason, code := "(MY.GPUSlotHoldReason isnt undefined)", "MY.GPUSlotHoldReason", "MY.GPUSlotHoldCode"
	if g.EarlyPercent > 0 {
		t.early(g)
		hold = "(MY.GPUSlotHoldReason isnt undefined || $(GPUSLOT_EARLY))"
		reason = "MY.GPUSlotHoldReason ?: $(GPUSLOT_EARLY_REASON)"
		code = fmt.Sprintf("MY.GPUSlotHoldCode ?: %d", g.NearLimit)
	}
	t.set("GPUSLOT_HOLD", "%s", hold)
	for _, k := range holdKnobs(reason, code) {
		t.set("GPUSLOT_"+k[0], "%s", k[1])
	}
}

// hold gives one slot type that policy.
func (t *text) hold(number int) {
	for _, k := range holdKnobs("", "") {
		t.set(fmt.Sprintf("SLOT_TYPE_%d_%s", number, k[0]), "$(GPUSLOT_%s)", k[0])
	}
}

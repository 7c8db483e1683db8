package condor

import (
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// GPUState is whether one GPU takes new jobs, as the startd shall hear it.
type GPUState struct {
	UUID   gpu.UUID
	Accept bool
	// Reason says why not; empty if it accepts.
	Reason string
	// Tenant is the Owner that new jobs must have; empty admits every owner.
	Tenant string
	// Time is when that was judged.
	Time time.Time
}

// MonitorAds prints one ad per GPU for STARTD_CRON, each merged into the slots
// of its GPU. Attributes without a value are printed as undefined instead of
// being left out, so that no earlier value can stay behind in a slot ad.
func MonitorAds(states []GPUState) []byte {
	var out []byte
	for _, s := range states {
		out = append(out, s.ad().Print()...)
		out = append(out, "- "+string(s.UUID)+" update:true\n"...)
	}
	return out
}

func (s GPUState) ad() classad.Ad {
	var ad classad.Ad
	ad.SetExpr("SlotMergeConstraint", "GPUSlotUUID == "+classad.Quote(string(s.UUID)))
	ad.SetBool("GPUAccept", s.Accept)
	ad.SetString("GPUAcceptReason", s.Reason)
	ad.SetInt("GPUAcceptTime", s.Time.Unix())
	ad.SetUndefined("GPUTenant")
	if s.Tenant != "" {
		ad.SetString("GPUTenant", s.Tenant)
	}
	return ad
}

// Closed is the state of GPUs about which nobody could be asked.
func Closed(uuids []gpu.UUID, reason string, at time.Time) []GPUState {
	states := make([]GPUState, 0, len(uuids))
	for _, u := range uuids {
		states = append(states, GPUState{UUID: u, Reason: reason, Time: at})
	}
	return states
}

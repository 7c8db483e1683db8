package condor

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// GPUState is whether one GPU takes new jobs, as the startd shall hear it.
type GPUState struct {
	UUID gpu.UUID
	// Whole: jobs have it whole, and one slot holds all such GPUs.
	Whole  bool
	Accept bool
	// Reason says why not; empty if it accepts.
	Reason string
	// ClosedBy are the owners of the holds that close it; empty if it accepts.
	ClosedBy []string
	// Tenant is whose jobs alone may come, as Tenant(…) says it; empty admits all.
	Tenant string
	// Least is the smallest request_vram of new jobs; 0 for none.
	Least gpu.MiB
	// Unlisted is the VRAM in use that NVML lists with no process, 0 where that is no more
	// than tolerated; Taken how much of it the slot still has for new jobs.
	Unlisted, Taken gpu.MiB
	// Verified is what came of the last verification; nil if there was none.
	Verified *bool
	// Above: only jobs that request more VRAM than this, or more CPUs or memory than
	// AboveHost; 0 for any.
	Above     gpu.MiB
	AboveHost Share
	// Pending is what HTCondor does not run yet of the plan; empty if nothing.
	Pending string
	// Time is when that was judged.
	Time time.Time
	// Since is when Accept, Reason, Tenant or Above last changed; zero if unknown.
	Since time.Time
}

// SaysTheSame compares all but the time.
func (s GPUState) SaysTheSame(o GPUState) bool {
	return s.UUID == o.UUID && s.Whole == o.Whole && s.Accept == o.Accept && s.Reason == o.Reason &&
		s.Least == o.Least && s.Unlisted == o.Unlisted && s.Taken == o.Taken && slices.Equal(s.ClosedBy, o.ClosedBy) &&
		s.Tenant == o.Tenant && s.Above == o.Above && s.AboveHost == o.AboveHost && s.Pending == o.Pending &&
		verifiedWord(s.Verified) == verifiedWord(o.Verified)
}

func verifiedWord(ok *bool) string {
	if ok == nil {
		return ""
	}
	return strconv.FormatBool(*ok)
}

// pushFor is for how long a change is sent to the collector at once: two
// periods of the monitor, in case one call is lost. Always would be one update
// per slot and period, twenty times what a pool's collector gets otherwise.
const pushFor = 35 * time.Second

// pushed reports whether the collector should hear at once of what was judged at a time and last changed at
// another, which is zero if unknown. Without it the slots' own policy still changes at once; the collector
// follows with the slot's next update.
func pushed(at, changed time.Time) bool { return changed.IsZero() || at.Sub(changed) < pushFor }

// MonitorAds prints one ad per GPU for STARTD_CRON, each merged into the slots
// of its GPU, and one for the slot of all whole GPUs. Attributes without a value are printed as undefined instead of
// being left out, so that no earlier value can stay behind in a slot ad.
func MonitorAds(states []GPUState) []byte {
	var out []byte
	var whole []GPUState
	for _, s := range states {
		if s.Whole {
			whole = append(whole, s)
			continue
		}
		var ad classad.Ad
		ad.SetExpr("SlotMergeConstraint", "GPUSlotUUID == "+classad.Quote(string(s.UUID)))
		ad.SetBool("GPUAccept", s.Accept)
		s.say(&ad)
		out = append(out, ad.Print()...)
		out = append(out, "- "+string(s.UUID)+" update:"+strconv.FormatBool(pushed(s.Time, s.Since))+"\n"...)
	}
	return append(out, wholeAd(whole)...)
}

// say is what the ads of both kinds have in common.
func (s GPUState) say(ad *classad.Ad) {
	ad.SetString("GPUAcceptReason", s.Reason)
	ad.SetString("GPUClosedBy", strings.Join(s.ClosedBy, ", "))
	ad.SetString("GPUSlotPending", s.Pending)
	ad.SetInt("GPUAcceptTime", s.Time.Unix())
	ad.SetUndefined("GPUTenant")
	if s.Tenant != "" {
		ad.SetString("GPUTenant", s.Tenant)
	}
	ad.SetUndefined("GPUVRAMLeast")
	if s.Least > 0 {
		ad.SetInt("GPUVRAMLeast", int64(s.Least))
	}
	ad.SetUndefined("GPUVRAMUnlisted")
	ad.SetUndefined("GPUVRAMTaken")
	if s.Unlisted > 0 {
		ad.SetInt("GPUVRAMUnlisted", int64(s.Unlisted))
		ad.SetInt("GPUVRAMTaken", int64(s.Taken))
	}
	switch {
	case s.Above > 0:
		ad.SetInt("GPUAbove", int64(s.Above))
		ad.SetInt("GPUAboveCpus", int64(s.AboveHost.CPUs))
		ad.SetInt("GPUAboveMemory", int64(s.AboveHost.Memory))
	case s.UUID.IsMIG(): // no other GPU ever has one
		ad.SetUndefined("GPUAbove")
		ad.SetUndefined("GPUAboveCpus")
		ad.SetUndefined("GPUAboveMemory")
	}
	ad.SetUndefined("GPUVerified")
	if s.Verified != nil {
		ad.SetBool("GPUVerified", *s.Verified)
	}
}

// wholeAd is for the slot that holds all whole GPUs. HTCondor gives a job the
// first that are free, so that none may start while a closed one is: GPUAccept
// is an expression on the slot's AvailableGPUs.
func wholeAd(all []GPUState) []byte {
	if len(all) == 0 {
		return nil
	}
	var closed, reasons []string
	var sum GPUState
	push := false
	for _, s := range all {
		push = push || pushed(s.Time, s.Since)
		sum.Pending = s.Pending // it is the node's
		if sum.Time.Before(s.Time) {
			sum.Time = s.Time
		}
		if s.Accept {
			continue
		}
		closed = append(closed, classad.Quote(s.UUID.Bare()))
		reasons = append(reasons, string(s.UUID)+" is "+s.Reason)
		sum.ClosedBy = append(sum.ClosedBy, s.ClosedBy...)
	}
	slices.Sort(sum.ClosedBy)
	sum.ClosedBy, sum.Reason = slices.Compact(sum.ClosedBy), strings.Join(reasons, "; ")
	var ad classad.Ad
	ad.SetExpr("SlotMergeConstraint", "GPUSlotWhole =?= true")
	if len(closed) == 0 {
		ad.SetBool("GPUAccept", true)
	} else {
		ad.SetExpr("GPUAccept", "countMatches(member(DeviceUuid, {"+strings.Join(closed, ", ")+"}), MY.AvailableGPUs) == 0")
	}
	sum.say(&ad)
	return []byte(ad.Print() + "- whole update:" + strconv.FormatBool(push) + "\n")
}

// Closed is the state of GPUs about which nobody could be asked.
func Closed(uuids []gpu.UUID, reason string, at time.Time) []GPUState {
	states := make([]GPUState, 0, len(uuids))
	for _, u := range uuids {
		states = append(states, GPUState{UUID: u, Reason: reason, Time: at})
	}
	return states
}

package condor

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// startsMacro holds the part of START that keeps jobs without a GPU away while their
// supervisor would send them back.
const startsMacro = "GPUSLOT_STARTS"

// supervisesAll: every job of the node starts through supervise, so that the device nodes
// of MIG devices are closed to it.
func (n Node) supervisesAll() bool { return n.Supervise && n.divided() }

// starts sets that part of START. Slots with GPUs have GPUAccept for it.
func (t *text) starts(n Node) {
	if !n.supervisesAll() || n.CPUOnly.CPUs < 1 {
		return
	}
	t.comment("Jobs without a GPU start when gpuslotd has closed the device nodes of MIG devices to them: they match",
		"while it does that, as GPUSLOT_OPEN has it of the others.")
	t.set(startsMacro, `(MY.SlotType =?= "Dynamic" ? MY.GPUSlotStarts =!= false \
  : MY.GPUSlotStarts =?= true && ((MY.LastHeardFrom ?: time()) - MY.GPUSlotStartsTime) < %d)`, maxAcceptAge)
}

// StartsState is whether supervisors let jobs without a GPU start, as the startd shall
// hear it.
type StartsState struct {
	// Reason says why they do not; empty if they do.
	Reason string
	// Time is when that was judged, Since when Reason last changed; zero if unknown.
	Time, Since time.Time
}

// Ad prints it for STARTD_CRON.
func (s StartsState) Ad() []byte {
	var ad classad.Ad
	ad.SetExpr("SlotMergeConstraint", "GPUSlotSupervised =?= true")
	ad.SetBool("GPUSlotStarts", s.Reason == "")
	ad.SetString("GPUSlotStartsReason", s.Reason)
	ad.SetInt("GPUSlotStartsTime", s.Time.Unix())
	return append([]byte(ad.Print()), fmt.Sprintf("- starts update:%t\n", pushed(s.Time, s.Since))...)
}

package condor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// elastic are the GPUs that whole jobs get at times, in the order in which they get
// them: the startd gives out the first free ids of a slot (seen on 25.14.1), so that
// with so many in use as START allows, the first ones are.
func (n Node) elastic() []Device {
	all := n.devices(func(d Device) bool { return d.Elastic })
	slices.Reverse(all)
	return all
}

// offered are all the CPUs, memory and VRAM of the slots. What whole jobs may have of
// the elastic GPUs is counted twice: a GPU serves one kind at a time.
func (n Node) offered() (cpus int, memory, vram gpu.MiB) {
	cpus, memory = n.CPUs, n.Memory
	for _, d := range n.Devices {
		vram += d.Pool
	}
	for _, d := range n.elastic() {
		cpus += d.Share.CPUs
		memory += d.Share.Memory
		vram += d.Memory
	}
	return cpus, memory, vram
}

// elasticType is the slot of the elastic GPUs for whole jobs. It is there always, and
// START takes as many as the agent says.
func elasticType(n Node) slotType {
	group := n.elastic()
	st := slotType{
		title:  "Elastic GPUs as whole ones: one slot for all.",
		ids:    len(group),
		among:  anyOf(group),
		number: elasticNumber, alone: true, elastic: true, devices: group,
		threads: 100,
	}
	for _, d := range group {
		st.vram += d.Memory
		st.share.CPUs += d.Share.CPUs
		st.share.Memory += d.Share.Memory
	}
	least, smallest := leastOf(group)
	st.start = []string{
		"(TARGET.RequestGPUs ?: 0) >= 1",
		wantsWhole(n),
		fmt.Sprintf("(TARGET.RequestVRAM ?: 0) <= %d * TARGET.RequestGPUs", int64(smallest)),
		// Each GPU comes with its own part: the rest may be in use by shared jobs.
		fmt.Sprintf("(TARGET.RequestCpus ?: 1) <= %d * TARGET.RequestGPUs && (TARGET.RequestMemory ?: 0) <= %d * "+
			"TARGET.RequestGPUs", least.CPUs, int64(least.Memory)),
	}
	st.guard = []string{"$(GPUSLOT_ELASTIC)"}
	st.last = "$(GPUSLOT_PICKS)"
	return st
}

// leastOf are the fewest CPUs and the least memory that go with one of some GPUs, and the
// least memory that one has itself.
func leastOf(group []Device) (least Share, smallest gpu.MiB) {
	least, smallest = group[0].Share, group[0].Memory
	for _, d := range group {
		least.CPUs, least.Memory = min(least.CPUs, d.Share.CPUs), min(least.Memory, d.Share.Memory)
		smallest = min(smallest, d.Memory)
	}
	return least, smallest
}

// wantsWhole is a job that no share serves, or that by the site's choice gets a GPU
// because it says nothing of VRAM.
func wantsWhole(n Node) string {
	wants := "TARGET.RequestGPUs >= 2"
	if n.WithoutRequest == WithoutRequestWhole {
		wants += " || TARGET.RequestVRAM is undefined"
	}
	return fmt.Sprintf("(%s || TARGET.RequestVRAM > %d)", wants, int64(largestShare(n)))
}

// elasticPolicy is the part of START that follows the agent's word on whole GPUs.
func (t *text) elasticPolicy(n Node) {
	if len(n.elastic()) == 0 {
		return
	}
	t.comment(
		"Whole jobs on elastic GPUs use at most as many GPUs as the agent opened, with the number of GPUs that is",
		"due. No claim is reused on a GPU that serves shared jobs again.",
	)
	t.set("GPUSLOT_ELASTIC", `(MY.SlotType =?= "Dynamic" \
  ? MY.GPUAccept =!= false && TARGET.RequestGPUs == MY.GPUs && (TARGET.RequestVRAM ?: 0) == MY.VRAM \
    && (MY.GPUWholeOpenGPUs is undefined || stringListSubsetMatch(MY.AssignedGPUs, MY.GPUWholeOpenGPUs)) \
  : MY.GPUAccept =?= true && $(GPUSLOT_FRESH) \
    && MY.TotalSlotGPUs - MY.GPUs + TARGET.RequestGPUs <= MY.GPUWholeOpen && TARGET.RequestGPUs >= MY.GPUWholeLeast)`)
	t.comment(
		"A job whose require_gpus fits some of the GPUs only does not start here: it would not get the first free",
		"ones. It stands last in START: in a startd of 25.14.1, MY and TARGET mean nothing behind countMatches of",
		"an attribute.",
	)
	t.set("GPUSLOT_PICKS", `(MY.SlotType =?= "Dynamic" \
  || member(countMatches(TARGET.RequireGPUs, AvailableGPUs), {0, size(AvailableGPUs)}))`)
}

// ElasticState is how many elastic GPUs take whole jobs, as the startd shall hear it.
type ElasticState struct {
	// Open GPUs of the slot may be in use, GPUs names them; Least is the fewest that
	// a new job must ask for.
	Open  int
	GPUs  []gpu.UUID
	Least int
	// Reason says why none is open, or what the group waits for.
	Reason string
	// Time is when that was judged, Since when it last changed; zero if unknown.
	Time, Since time.Time
}

// SaysTheSame compares all but the time.
func (s ElasticState) SaysTheSame(o ElasticState) bool {
	return s.Open == o.Open && s.Least == o.Least && s.Reason == o.Reason && slices.Equal(s.GPUs, o.GPUs)
}

// Ad prints it for STARTD_CRON.
func (s ElasticState) Ad() []byte {
	ids := make([]string, 0, len(s.GPUs))
	for _, u := range s.GPUs {
		ids = append(ids, string(u))
	}
	var ad classad.Ad
	ad.SetExpr("SlotMergeConstraint", "GPUSlotElastic =?= true")
	ad.SetBool("GPUAccept", s.Open > 0)
	ad.SetString("GPUAcceptReason", s.Reason)
	ad.SetInt("GPUAcceptTime", s.Time.Unix())
	ad.SetInt("GPUWholeOpen", int64(s.Open))
	ad.SetInt("GPUWholeLeast", int64(s.Least))
	ad.SetString("GPUWholeOpenGPUs", strings.Join(ids, ", "))
	return append([]byte(ad.Print()), fmt.Sprintf("- elastic update:%t\n", pushed(s.Time, s.Since))...)
}

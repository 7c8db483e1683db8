package condor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// slotType is one SLOT_TYPE_<n>, which has exactly one partitionable slot.
type slotType struct {
	title string
	// number is N; see sharedNumber.
	number int
	// gpus is the count, with a constraint if it is not 0.
	gpus  string
	vram  gpu.MiB
	share Share
	// uuid is the shared GPU or the MIG device; empty on the types of whole GPUs
	// and of none.
	uuid gpu.UUID
	// alone: the jobs have the device to themselves, without a control daemon.
	alone bool
	// whole: it holds all GPUs that jobs have whole; elastic: those that they have at times.
	whole, elastic bool
	// ahead: the hook alone says which MIG device the job gets.
	ahead bool
	// supervised: its jobs have no GPU, and start when gpuslotd has closed the device nodes
	// of MIG devices to them.
	supervised bool
	// threads is the largest percentage of multiprocessors that a job may ask
	// for; 0 on the type without GPUs.
	threads float64
	// devices are those that it gives out, startd the one that has it: empty for
	// HTCondor's own.
	devices []Device
	startd  string
	// disk is its part of the disk in percent; 0 leaves that to HTCondor, which
	// would give all of it to each startd.
	disk int
	// start are the conditions besides the site's START; last is the one behind which
	// MY and TARGET mean nothing, so that it follows the site's, or empty.
	start []string
	last  string
}

// The numbers of slot types. Sites number theirs from 1 on, so gpuslot begins behind
// them. Each kind has its own range, and a GPU its own number there, because a starter
// reads what its slot type wants (the hook, the job wrapper) from the files as they are
// now, under the number that its startd was started with: after a change of the plan
// that number must not be another kind's, or jobs would start without the hook.
const (
	siteNumbers    = 100
	mostDevices    = 200
	sharedNumbers  = siteNumbers + 1
	instanceNumber = sharedNumbers + mostDevices
	wholeNumber    = instanceNumber + mostDevices
	cpuOnlyNumber  = wholeNumber + 1
	parkedNumber   = cpuOnlyNumber + 1
	// HTCondor reads 10 unless told, and ignores the others without a word
	// (seen on 25.14.1: 10 slots of 17).
	maxSlotTypes = siteNumbers + 3*mostDevices
	// The last one; a node of so many GPUs that parked types reach it does not exist.
	elasticNumber = maxSlotTypes
)

// within are HTCondor's own limits, and gpuslot's word on the GPU again: while a drain
// with a START of its own goes on, that START replaces the one of the slot type, and
// the limits stay (by the source of 24.0.1 to 25.14).
func (st slotType) within() []string {
	limits := []string{"$(GPUSLOT_WITHIN)", notNegative}
	for _, condition := range st.start {
		if strings.HasPrefix(condition, "$(") {
			limits = append(limits, condition)
		}
	}
	return limits
}

// sharedNumber is the type of a shared GPU: its place among the node's GPUs,
// whatever the others' modes; of shared MIG devices behind all GPUs.
func (n Node) sharedNumber(d Device) int {
	gpus := n.physicals()
	if d.Profile == "" {
		return sharedNumbers + slices.Index(gpus, d.UUID)
	}
	parts := n.devices(func(o Device) bool { return o.Shared && o.Profile != "" })
	return sharedNumbers + len(gpus) + slices.IndexFunc(parts, func(o Device) bool { return o.UUID == d.UUID })
}

// SlotTypeOf is the number of a shared GPU's or MIG device's slot type; false for
// others.
func SlotTypeOf(n Node, u gpu.UUID) (number int, ok bool) {
	types := slotTypes(n)
	i := slices.IndexFunc(types, func(st slotType) bool { return st.uuid == u })
	if i < 0 {
		return 0, false
	}
	return types[i].number, true
}

// physicals are the node's GPUs, each once.
func (n Node) physicals() []gpu.UUID {
	var all []gpu.UUID
	for _, d := range n.Devices {
		if u := cmp.Or(d.Parent, d.UUID); !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	return all
}

// reserved are the numbers of GPUs that are not shared now: the jobs of a
// startd that still shares them pass the hook.
func reserved(n Node) []slotType {
	var types []slotType
	for i, u := range n.physicals() {
		if !slices.ContainsFunc(n.shared(), func(d Device) bool { return d.UUID == u }) {
			types = append(types, slotType{number: sharedNumbers + i, uuid: u})
		}
	}
	return types
}

// slotTypes are the types in the order of their slots: shared GPUs first.
func slotTypes(n Node) []slotType {
	var types []slotType
	for _, d := range n.shared() {
		types = append(types, sharedType(n, d))
	}
	for i, d := range n.instances() {
		st := instanceType(n, d)
		st.number = instanceNumber + i
		types = append(types, st)
	}
	// After the shared types, which take all ids of their GPUs but one.
	if len(n.elastic()) > 0 {
		types = append(types, elasticType(n))
	}
	if len(n.whole()) > 0 {
		types = append(types, wholeType(n))
	}
	if n.CPUOnly.CPUs > 0 {
		types = append(types, cpuOnlyType(n))
	}
	for i := range types {
		types[i].start = append(types[i].start, notNegative)
		if len(n.Devices) > 0 {
			types[i].start = append(types[i].start, "$("+insideMacro+")")
		}
	}
	if n.PerGPU {
		types = apart(n, types)
	}
	return types
}

// apart gives each startd its types, one at least.
func apart(n Node, types []slotType) []slotType {
	for i := range types {
		if types[i].uuid != "" {
			types[i].startd = n.startdOf(types[i].devices[0])
		}
		types[i].disk = max(1, 100*types[i].share.CPUs/n.CPUs)
	}
	for i, name := range startdNames(n) {
		if !slices.ContainsFunc(types, func(st slotType) bool { return st.startd == name }) {
			st := parkedType(name)
			st.number = parkedNumber + i
			types = append(types, st)
		}
	}
	return types
}

// notNegative is a part of every START: a slot made for a negative request would leave
// the partitionable slot with more VRAM than the GPU has. A request that is an error or
// no number makes it an error, which matches nothing.
const notNegative = "(TARGET.RequestVRAM ?: 0) >= 0"

func sharedType(n Node, d Device) slotType {
	st := slotType{
		title:  fmt.Sprintf("GPU %d: %s, %s, shared by at most %d jobs.", d.Index, d.UUID, d.model(), d.Shares),
		number: n.sharedNumber(d),
		gpus:   fmt.Sprintf("%d : DeviceUuid == %s", d.Shares, classad.Quote(d.UUID.Bare())),
		vram:   d.Pool,
		share:  d.Share,
		uuid:   d.UUID,

		devices: []Device{d},
		start:   []string{"TARGET.RequestGPUs =?= 1"},

		threads: d.mostThreads(),
	}
	// A pool may have nodes without gpuslot, which such a job is for. By the site's
	// choice it comes in here: the agent gives it a share, or the hook holds it.
	if n.WithoutRequest == WithoutRequestWhole || n.WithoutRequest == WithoutRequestRefuse {
		st.start = append(st.start, "(TARGET.RequestVRAM ?: 0) > 0")
	}
	if st.threads < 100 {
		// What is no percentage comes in for the hook to hold it.
		st.start = append(st.start, fmt.Sprintf("(TARGET.RequestGPUThreads > %s && TARGET.RequestGPUThreads <= 100) =!= true", percent(st.threads)))
	}
	st.start = append(st.start,
		fmt.Sprintf("(TARGET.RequestVRAM ?: 0) <= %d", int64(d.LargestRequest)),
		"$(GPUSLOT_OPEN)", "$("+tenantMacro(d.Tenant)+")")
	return st
}

// instanceType is a MIG device that one job has at a time. It has a type of its
// own, not one with the others of its GPU: in a slot with devices of several
// sizes HTCondor gives out the first free one, whatever VRAM the job asked for.
func instanceType(n Node, d Device) slotType {
	st := slotType{
		title: fmt.Sprintf("GPU %d: %s, %s.", d.Index, d.UUID, d.model()),
		gpus:  "1 : " + classad.Quote(string(d.UUID)), // the id
		vram:  d.Pool,
		share: d.Share,
		uuid:  d.UUID,

		devices: []Device{d},
		alone:   true,
		ahead:   d.Place != "",
		start:   []string{"TARGET.RequestGPUs =?= 1"},

		threads: 100,
	}
	if n.WithoutRequest == WithoutRequestWhole {
		st.start = append(st.start, "(TARGET.RequestVRAM ?: 0) > 0")
	}
	st.start = append(st.start, fmt.Sprintf("(TARGET.RequestVRAM ?: 0) <= %d", int64(d.Pool)), "$(GPUSLOT_OPEN)")
	if n.Repartition != "" {
		st.last = "$(GPUSLOT_LARGE)"
	}
	return st
}

// model is the product's name, with the profile of a MIG device.
func (d Device) model() string {
	if d.Profile == "" {
		return d.Name
	}
	return d.Name + " MIG " + d.Profile
}

// mostThreads is MostThreads where nothing is bounded, too.
func (d Device) mostThreads() float64 {
	if d.MostThreads <= 0 || d.MostThreads > 100 {
		return 100
	}
	return d.MostThreads
}

func percent(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// policy are the parts that START of all shared GPUs and MIG devices has in common.
func (t *text) policy(n Node) {
	if !n.hooked() {
		return
	}
	t.line("")
	t.comment(
		"A partitionable slot starts jobs only while the agent says so, and said so less than a minute",
		"ago: now in the startd, when the ad arrived in the collector's copy, which may be minutes old.",
		"(MyCurrentTime is no use: 25.14.1 sends it older than the ad.) Without MY. a job could say itself",
		"what the slot does not. A dynamic slot whose claim is reused must fit the next job as it is.",
		"The startd cuts off the fraction of a request_vram; here it counts no more, so that the hook",
		"can hold such a job with a sentence. Otherwise it would match for ever and never start.",
		"GPUVRAMTaken is VRAM that the slot still has, but that is in use by no process that NVML lists.",
	)
	t.set("GPUSLOT_FRESH", "((MY.LastHeardFrom ?: time()) - MY.GPUAcceptTime) < %d", maxAcceptAge)
	t.set("GPUSLOT_OPEN", `(MY.SlotType =?= "Dynamic" ? MY.GPUAccept =!= false && floor(TARGET.RequestVRAM ?: 0) == MY.VRAM \
  : MY.GPUAccept =?= true && $(GPUSLOT_FRESH) && floor(TARGET.RequestVRAM ?: 0) <= MY.VRAM - (MY.GPUVRAMTaken ?: 0)%s)`,
		t.reserving(n))
	t.set("GPUSLOT_WITHIN", "%s", withinLimits)
	t.elasticPolicy(n)
	if n.Repartition != "" {
		t.comment("While larger jobs wait, a MIG device leaves those that a smaller profile serves to that; a job with",
			"require_gpus has said itself what it wants (by itself RequireGPUs is undefined: it speaks of a GPU;",
			"with MY.AvailableGPUs nothing matches, and every slot has its own). In START it comes last: in a startd",
			"of 25.14.1 MY and TARGET mean nothing behind countMatches of an attribute.")
		t.set("GPUSLOT_LARGE", "(MY.GPUAbove is undefined || (TARGET.RequestVRAM ?: 0) > MY.GPUAbove \\\n"+
			"  || (TARGET.RequestCpus > MY.GPUAboveCpus) =?= true || (TARGET.RequestMemory > MY.GPUAboveMemory) =?= true \\\n"+
			"  || (countMatches(TARGET.RequireGPUs, AvailableGPUs) > 0) =?= true)")
	}
	if len(n.whole()) > 0 {
		t.comment("The slot of the whole GPUs has one GPUAccept for all of them: it is an expression on those that are free.")
		t.set("GPUSLOT_WHOLE_OPEN", `(MY.SlotType =?= "Dynamic" ? MY.GPUAccept =!= false : MY.GPUAccept =?= true && $(GPUSLOT_FRESH))`)
	}
	t.starts(n)
	t.tenants(n)
	t.holdPolicy(n.Growth)
}

// reserving is the part of START that follows GPUVRAMLeast.
func (t *text) reserving(n Node) string {
	if !n.Reserves {
		return ""
	}
	t.comment("Where a large request has waited for long, smaller ones are kept away.")
	return " && (TARGET.RequestVRAM ?: 0) >= (MY.GPUVRAMLeast ?: 0)"
}

// withinLimits is HTCondor 25.14.1's own WithinResourceLimits, but for the
// floor; that other resources suffice, the job's Requirements see to. Earlier
// versions' is the same without the catalogues, which their jobs do not have.
const withinLimits = `MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus && MY.Memory > 0 && TARGET.RequestMemory <= MY.Memory && MY.Disk > 0 \
  && (TARGET.RequestDisk - ifThenElse(MappingMethod ?: "" != "Copy", ifThenElse(RequestedCatalogs is undefined || catalogs is undefined, 0, \
    sum(evalInEachContext(member(CatalogID, RequestedCatalogIDs) ? CatalogSize : 0, catalogs))), 0)) <= MY.Disk \
  && (TARGET.RequestGPUs is undefined || MY.GPUs >= TARGET.RequestGPUs) \
  && (TARGET.RequestVRAM is undefined || MY.VRAM >= floor(TARGET.RequestVRAM))`

// maxAcceptAge is for how many seconds START believes the agent.
const maxAcceptAge = 60

// wholeType holds all whole GPUs: for jobs that want several, or more VRAM
// than any share gives, or (by the site's choice) say nothing of VRAM.
func wholeType(n Node) slotType {
	whole := n.whole()
	st := slotType{
		title:  fmt.Sprintf("Whole GPUs: %s.", strings.Join(names(whole), "; ")),
		number: wholeNumber,
		gpus:   fmt.Sprintf("%d : %s", len(whole), anyOf(whole)),
		start:  []string{"(TARGET.RequestGPUs ?: 0) >= 1"},
		whole:  true,

		devices: whole,
		threads: 100,
	}
	smallest := whole[0].Pool
	for _, d := range whole {
		st.vram += d.Pool
		st.share.CPUs += d.Share.CPUs
		st.share.Memory += d.Share.Memory
		smallest = min(smallest, d.Pool)
	}
	if largestShare(n) > 0 {
		st.start = append(st.start, wantsWhole(n))
	}
	st.start = append(st.start,
		fmt.Sprintf("(TARGET.RequestVRAM ?: 0) <= %d * TARGET.RequestGPUs", int64(smallest)),
		`(MY.SlotType =!= "Dynamic" || TARGET.RequestGPUs == MY.GPUs && (TARGET.RequestVRAM ?: 0) == MY.VRAM)`,
		"$(GPUSLOT_WHOLE_OPEN)")
	return st
}

func cpuOnlyType(n Node) slotType {
	st := slotType{
		title:  "Jobs without GPUs.",
		number: cpuOnlyNumber,
		gpus:   "0", // said, because what is not said is given what is left
		share:  n.CPUOnly,
		start:  []string{"(TARGET.RequestGPUs ?: 0) == 0"},

		supervised: n.supervisesAll(),
	}
	if st.supervised {
		st.start = append(st.start, "$("+startsMacro+")")
	}
	return st
}

// largestShare is the largest budget on any shared GPU or MIG device; 0 if there
// is none.
func largestShare(n Node) gpu.MiB {
	var largest gpu.MiB
	for _, d := range n.instances() {
		largest = max(largest, d.Pool)
	}
	for _, d := range n.shared() {
		largest = max(largest, d.LargestRequest)
	}
	return largest
}

func anyOf(devices []Device) string {
	bare := make([]string, 0, len(devices))
	for _, d := range devices {
		bare = append(bare, classad.Quote(d.UUID.Bare()))
	}
	return "member(DeviceUuid, {" + strings.Join(bare, ", ") + "})"
}

func names(devices []Device) []string {
	var names []string
	for _, d := range devices {
		names = append(names, fmt.Sprintf("%d %s %s", d.Index, d.UUID, d.Name))
	}
	return names
}

package condor

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// slotType is one SLOT_TYPE_<n>: partitionable slots that differ in their device alone.
type slotType struct {
	title string
	// number is N; see sharedNumbers.
	number int
	// ids is how many GPU ids a slot has, among the constraint that they meet.
	ids   int
	among string
	vram  gpu.MiB
	share Share
	// single: each slot has one device, and the type as many slots as devices.
	single bool
	// alone: the jobs have the device to themselves, withoutMPS: they share it, without a control daemon.
	alone, withoutMPS bool
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
	// start are the conditions on a job besides guard and the site's START; last is the one
	// behind which MY and TARGET mean nothing, so that it follows the site's, or empty.
	start []string
	last  string
	// guard are those that hold during a drain with a START of its own, too: macros.
	guard []string
}

// The numbers of slot types. Sites number theirs from 1 on, so gpuslot begins behind
// them. Each kind has its own range, because a starter reads what its slot type wants
// (the hook, the job wrapper) from the files as they are now, under the number that its
// startd was started with: after a change of the plan that number must not be another
// kind's, or jobs would start without the hook. See starterNumbers.
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

// slots is how many the type has.
func (st slotType) slots() int {
	if !st.single {
		return 1
	}
	return len(st.devices)
}

// like reports whether slots of both differ in their device alone.
func (st slotType) like(o slotType) bool {
	st.devices, o.devices, st.number, o.number = nil, nil, 0, 0
	return reflect.DeepEqual(st, o)
}

// SlotTypeOf is the number of a shared GPU's or MIG device's slot type; false for
// others.
func SlotTypeOf(n Node, u gpu.UUID) (number int, ok bool) {
	return typeOf(slotTypes(n), u)
}

func typeOf(types []slotType, u gpu.UUID) (number int, ok bool) {
	for _, st := range types {
		if st.single && slices.ContainsFunc(st.devices, func(d Device) bool { return d.UUID == u }) {
			return st.number, true
		}
	}
	return 0, false
}

// starterNumbers are the types for which starters get settings: those that are there,
// and those that a startd may still have from an earlier plan.
func starterNumbers(n Node, types []slotType) []slotType {
	out := slices.Clone(types)
	reserve := func(first, most int) {
		for number := first; number < first+most; number++ {
			if !slices.ContainsFunc(types, func(st slotType) bool { return st.number == number }) {
				out = append(out, slotType{number: number, single: true})
			}
		}
	}
	if len(n.Devices) > 0 {
		reserve(sharedNumbers, mostKinds)
	}
	if n.divided() {
		reserve(instanceNumber, mostProfiles)
	}
	slices.SortStableFunc(out, func(a, b slotType) int { return a.number - b.number })
	return out
}

// A node has no more kinds of shared GPUs, and of MIG devices, in practice.
const (
	mostKinds    = 4
	mostProfiles = 8
)

// typed gives each kind of device a type and a number, from first on.
func typed(n Node, devices []Device, first int, of func(Node, Device) slotType) []slotType {
	var types []slotType
	for _, d := range devices {
		st := of(n, d)
		if n.PerGPU {
			st.startd = n.startdOf(d)
		}
		if i := slices.IndexFunc(types, st.like); i >= 0 {
			types[i].devices = append(types[i].devices, d)
			continue
		}
		st.number = first + len(types)
		types = append(types, st)
	}
	for i := range types {
		types[i].among = fmt.Sprintf("%s == %d", typeProperty, types[i].number)
	}
	return types
}

// typeProperty is the property of an inventory's device that names its slot type: a
// slot gets the first free ids with its number, and those of a GPU stand together.
const typeProperty = "GPUSlotType"

// slotTypes are the types in the order of their slots: shared GPUs first.
func slotTypes(n Node) []slotType {
	types := slices.Concat(
		typed(n, n.shared(), sharedNumbers, sharedType),
		typed(n, n.instances(), instanceNumber, instanceType))
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
		types[i].guard = append(types[i].guard, "$(GPUSLOT_WHOLE_MIB)")
		if len(n.Devices) > 0 {
			types[i].guard = append(types[i].guard, "$("+insideMacro+")")
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

// wholeMiB is a part of every START: a slot made for a negative request would leave the
// partitionable slot with more VRAM than the GPU has, and the startd cuts off a fraction,
// so that the job would match for ever and never start. A request that is an error or no
// number makes it an error, which matches nothing.
const wholeMiB = "(TARGET.RequestVRAM ?: 0) >= 0 && (TARGET.RequestVRAM ?: 0) == floor(TARGET.RequestVRAM ?: 0)"

func sharedType(n Node, d Device) slotType {
	st := slotType{
		title:  fmt.Sprintf("%s: one slot each, for at most %d jobs.", d.model(), d.Shares),
		ids:    d.Shares,
		vram:   d.Pool,
		share:  d.Share,
		single: true,

		devices:    []Device{d},
		withoutMPS: d.WithoutMPS,
		start:      []string{"TARGET.RequestGPUs =?= 1"},

		threads: d.mostThreads(),
	}
	// A pool may have nodes without gpuslot, which such a job is for. By the site's
	// choice it comes in here: the agent gives it a share, or the hook holds it.
	if n.WithoutRequest == WithoutRequestWhole || n.WithoutRequest == WithoutRequestRefuse {
		st.start = append(st.start, "(TARGET.RequestVRAM ?: 0) > 0")
	}
	if st.threads < 100 {
		// What is no percentage comes in for the hook to hold it.
		st.start = append(st.start, fmt.Sprintf("(TARGET.RequestGPUThreads > %s && TARGET.RequestGPUThreads <= 100) =!= "+
			"true", percent(st.threads)))
	}
	st.start = append(st.start, fmt.Sprintf("(TARGET.RequestVRAM ?: 0) <= %d", int64(d.LargestRequest)))
	st.guard = []string{"$(GPUSLOT_OPEN)", "$(" + tenantMacro(d.Tenant) + ")"}
	return st
}

// instanceType is a MIG device that one job has at a time. It has a slot of its
// own, not one with the others of its GPU: in a slot with devices of several
// sizes HTCondor gives out the first free one, whatever VRAM the job asked for.
func instanceType(n Node, d Device) slotType {
	st := slotType{
		title:  d.model() + ": one slot each, for one job.",
		ids:    1,
		vram:   d.Pool,
		share:  d.Share,
		single: true,

		devices: []Device{d},
		alone:   true,
		ahead:   d.Place != "",
		start:   []string{"TARGET.RequestGPUs =?= 1"},

		threads: 100,
	}
	if n.WithoutRequest == WithoutRequestWhole {
		st.start = append(st.start, "(TARGET.RequestVRAM ?: 0) > 0")
	}
	st.start = append(st.start, fmt.Sprintf("(TARGET.RequestVRAM ?: 0) <= %d", int64(d.Pool)))
	st.guard = []string{"$(GPUSLOT_OPEN)"}
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
		"A partitionable slot starts jobs only if the agent allowed it less than a minute ago. For the collector's",
		"copy the time of its arrival counts (25.14.1's MyCurrentTime is older than the ad).",
		"A dynamic slot whose claim is reused must fit the next job exactly.",
		"GPUVRAMTaken is VRAM that is in use by no process that NVML lists. The slot still has it.",
	)
	t.set("GPUSLOT_FRESH", "((MY.LastHeardFrom ?: time()) - MY.GPUAcceptTime) < %d", maxAcceptAge)
	t.set("GPUSLOT_OPEN", `(MY.SlotType =?= "Dynamic" ? MY.GPUAccept =!= false && (TARGET.RequestVRAM ?: 0) == MY.VRAM \
  : MY.GPUAccept =?= true && $(GPUSLOT_FRESH) && (TARGET.RequestVRAM ?: 0) <= MY.VRAM - (MY.GPUVRAMTaken ?: 0)%s)`,
		t.reserving(n))
	t.elasticPolicy(n)
	if n.Repartition != "" {
		t.comment("While larger jobs wait, a MIG device takes no jobs that a smaller profile can serve, except those with",
			"require_gpus. RequireGPUs is about a GPU, so countMatches compares it with the slot's own AvailableGPUs",
			"(MY.AvailableGPUs matches nothing). It stands last in START: in a startd of 25.14.1, MY and TARGET",
			"mean nothing behind countMatches of an attribute.")
		t.set("GPUSLOT_LARGE", "(MY.GPUAbove is undefined || (TARGET.RequestVRAM ?: 0) > MY.GPUAbove \\\n"+
			"  || (TARGET.RequestCpus > MY.GPUAboveCpus) =?= true || (TARGET.RequestMemory > MY.GPUAboveMemory) =?= true \\\n"+
			"  || (countMatches(TARGET.RequireGPUs, AvailableGPUs) > 0) =?= true)")
	}
	if len(n.whole()) > 0 {
		t.comment("The slot of the whole GPUs has one GPUAccept for all: an expression over those that are free.")
		t.set("GPUSLOT_WHOLE_OPEN", `(MY.SlotType =?= "Dynamic" ? MY.GPUAccept =!= false : `+
			`MY.GPUAccept =?= true && $(GPUSLOT_FRESH))`)
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
	t.comment("Where a large request has waited for long, the GPU takes no smaller ones.")
	return " && (TARGET.RequestVRAM ?: 0) >= (MY.GPUVRAMLeast ?: 0)"
}

// maxAcceptAge is for how many seconds START believes the agent.
const maxAcceptAge = 60

// wholeType holds all whole GPUs: for jobs that want several, or more VRAM
// than any share gives, or (by the site's choice) say nothing of VRAM.
func wholeType(n Node) slotType {
	whole := n.whole()
	st := slotType{
		title:  "Whole GPUs: one slot for all.",
		number: wholeNumber,
		ids:    len(whole),
		among:  anyOf(whole),
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
		`(MY.SlotType =!= "Dynamic" || TARGET.RequestGPUs == MY.GPUs && (TARGET.RequestVRAM ?: 0) == MY.VRAM)`)
	st.guard = []string{"$(GPUSLOT_WHOLE_OPEN)"}
	return st
}

func cpuOnlyType(n Node) slotType {
	st := slotType{
		title:  "Jobs without GPUs.",
		number: cpuOnlyNumber,
		share:  n.CPUOnly,
		start:  []string{"(TARGET.RequestGPUs ?: 0) == 0"},

		supervised: n.supervisesAll(),
	}
	if st.supervised {
		st.guard = []string{"$(" + startsMacro + ")"}
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

// anyOf has no comma, which would end the constraint.
func anyOf(devices []Device) string {
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, "DeviceUuid == "+classad.Quote(d.UUID.Bare()))
	}
	return strings.Join(ids, " || ")
}

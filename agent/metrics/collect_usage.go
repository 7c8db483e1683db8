package metrics

import (
	"strconv"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// Devices, the MIG devices among them, and slots are families of their own: a
// sum over one of them counts nothing twice. Bounds are names, not a label, for
// the same reason.
var (
	sampled = desc("sample_timestamp_seconds", "When the last round of samples ended, with or without success.")

	sourceUp = desc("source_up", "Whether a source of the agent answered last time, "+
		"for every GPU.", "source")
	sourceTook    = desc("source_duration_seconds", "How long the source took to answer last time.", "source")
	sourceSuccess = desc("source_last_success_timestamp_seconds",
		"When the source last answered for every GPU.", "source")
	sourceFailures = desc("source_failures_total",
		"Attempts that failed, or failed for some GPU, since the agent started.", "source")

	gpuMemoryUsed = desc("gpu_memory_used_bytes", "Memory in use on the GPU.", "gpu")
	gpuPower      = desc("gpu_power_watts", "Power that the GPU draws.", "gpu")
	gpuPowerLimit = desc("gpu_power_limit_watts", "Power limit of the GPU that is enforced now.", "gpu")
	gpuHeat       = desc("gpu_temperature_celsius", "Temperature of the GPU's chip.", "gpu")
	gpuClock      = desc("gpu_clock_hertz", "Clocks of the GPU, by domain (sm, memory).", "gpu", "domain")
	gpuLimited    = desc("gpu_clock_limited", "Whether a reason reduces the GPU's clocks now.", "gpu", "reason")
	gpuECC        = desc("gpu_ecc_errors_total",
		"ECC errors of the GPU over its life, by kind (corrected, uncorrected); absent where ECC is off.", "gpu", "kind")
	gpuUnplanned = desc("gpu_unplanned", "A GPU of the node that the plan leaves out: "+
		"its use is reported, and no slot has it; the value is 1.", "gpu")
	gpuSM         = desc("gpu_sm_seconds_total", "Seconds of full activity of the GPU's multiprocessors.", "gpu")
	gpuBusy       = desc("gpu_busy_seconds_total", "Seconds in which any kernel ran on the GPU, however small.", "gpu")
	gpuDRAM       = desc("gpu_dram_active_seconds_total", "Seconds of full bandwidth of the GPU's memory.", "gpu")
	gpuEnergy     = desc("gpu_energy_joules_total", "Energy that the GPU drew since the driver was loaded.", "gpu")
	gpuRestEnergy = desc("gpu_unattributed_energy_joules_total",
		"Energy since the agent started that no slot was given.", "gpu")
	gpuFaults = desc("gpu_faults_total",
		"Events of the GPU since the agent started, by reason (such as xid-79) and by what they require.", "gpu",
		"reason", "class")

	deviceSampled = desc("gpu_sampled_seconds_total",
		"Seconds for which the activity of the GPU or MIG device is known: the denominator of the SM seconds.", "gpu", "mig")
	deviceRest = desc("gpu_unattributed_sm_seconds_total",
		"SM seconds of the GPU or MIG device that no slot's estimate has.", "gpu", "mig")
	deviceContended = desc("gpu_memory_contention",
		"1 while jobs that share the GPU slow each other down at its memory: its interface is busy for more than 0.6 of ten "+
			"minutes, with several jobs there; absent where the driver does not report it.", "gpu")
	deviceBeyond = desc("gpu_bounds_exceeded_total",
		"Intervals in which the GPU or MIG device did more than the limits of its slots allow: a limit is not enforced.",
		"gpu", "mig")
	deviceActivity = desc("gpu_activity_info",
		"How the activity of the GPU or MIG device is known and divided among slots; the value is 1.", "gpu", "mig",
		"method", "source")
	deviceProcs = desc("gpu_processes", "Processes with a context on the GPU or MIG device, "+
		"by owner (slot, server, none).", "gpu", "mig", "owner")
	deviceUnlisted = desc("gpu_unlisted_memory_bytes",
		"Memory in use on the GPU or MIG device that NVML lists with no process, beyond 26 MiB; the least of three samples.",
		"gpu", "mig")
	deviceUnowned = desc("gpu_unowned_memory_bytes",
		"Memory that processes in no slot hold on the GPU or MIG device, MPS servers not counted.", "gpu", "mig")

	migInfo       = desc("mig_info", "A MIG device; the value is 1.", "gpu", "mig", "gpu_instance")
	migMemory     = desc("mig_memory_bytes", "Total memory of the MIG device.", "gpu", "mig")
	migMemoryUsed = desc("mig_memory_used_bytes", "Memory in use on the MIG device.", "gpu", "mig")
	migSM         = desc("mig_sm_seconds_total", "Seconds of full activity of the MIG device's own multiprocessors.",
		"gpu", "mig")
	migRatio = desc("mig_sm_ratio", "The MIG device's part of the GPU's multiprocessors.", "gpu", "mig")

	slotInfo = desc("slot_info", "A slot in use; the value is 1. "+
		"The only metric that names the job and its user; empty if not published.",
		"slot", "gpu", "mig", "method", "job_id", "vo",
		"user", "accounting_group")
	slotAdmitted = desc("slot_admitted_timestamp_seconds", "When the slot's job was admitted to the GPU.", "slot",
		"gpu", "mig")
	slotBudget = desc("slot_memory_budget_bytes", "VRAM that the slot was given.", "slot", "gpu", "mig")
	slotUsed   = desc("slot_memory_used_bytes", "VRAM that the slot's processes hold together.", "slot", "gpu", "mig")
	slotPeak   = desc("slot_memory_peak_bytes", "The largest VRAM of the slot's present job that was seen.", "slot",
		"gpu", "mig")
	slotProcs = desc("slot_gpu_processes", "Processes of the slot that have a context on the GPU or MIG device.",
		"slot", "gpu", "mig")
	slotCap = desc("slot_sm_limit_ratio",
		"The part of the multiprocessors of the GPU or MIG device that one client of the slot can have at most; "+
			"1 if the job can remove every limit.", "slot", "gpu", "mig")
	slotShare = desc("slot_share_ratio", "The part of the GPU or MIG device that the slot was given.", "slot",
		"gpu", "mig")
	slotAllocated = desc("slot_allocated_seconds_total", "GPU-seconds that the slot was given, used or not.", "slot",
		"gpu", "mig")
	slotSM = desc("slot_sm_seconds_total",
		"GPU-seconds of multiprocessor time of the slot: the estimate between the bounds.", "slot", "gpu", "mig")
	slotSMMin = desc("slot_sm_min_seconds_total",
		"Lower bound of slot_sm_seconds_total. Bounds of several slots do not add up to the GPU.", "slot", "gpu", "mig")
	slotSMMax = desc("slot_sm_max_seconds_total",
		"Upper bound of slot_sm_seconds_total. Bounds of several slots do not add up to the GPU.", "slot", "gpu", "mig")
	slotSMLikelyMin = desc("slot_sm_likely_min_seconds_total",
		"Lower end of the likely interval of slot_sm_seconds_total, by what changed when jobs came and went.",
		"slot", "gpu", "mig")
	slotSMLikelyMax = desc("slot_sm_likely_max_seconds_total",
		"Upper end of the likely interval of slot_sm_seconds_total, by what changed when jobs came and went.",
		"slot", "gpu", "mig")
	slotEnergy = desc("slot_energy_joules_total",
		"Energy apportioned to the slot: idle power by share, the rest by multiprocessor time.", "slot", "gpu", "mig")
	slotEnergyMin = desc("slot_energy_min_joules_total", "Lower bound of slot_energy_joules_total.", "slot", "gpu", "mig")
	slotEnergyMax = desc("slot_energy_max_joules_total", "Upper bound of slot_energy_joules_total.", "slot", "gpu", "mig")
)

func (u *Usage) collect(to *sink) {
	if !u.Sampled.IsZero() {
		to.gauge(sampled, seconds(u.Sampled))
	}
	for _, s := range u.Sources {
		s.collect(to)
	}
	for _, g := range u.Unplanned {
		to.gauge(gpuUnplanned, 1, string(g))
	}
	whole := map[gpu.UUID]int{}
	for i := range u.Devices {
		d := &u.Devices[i]
		collectDevice(d, to)
		if d.MIG == "" {
			whole[d.GPU] = d.Multiprocessors
			collectGPU(d, to)
		} else {
			collectMIG(d, whole[d.GPU], to)
		}
	}
	for i := range u.Slots {
		u.Slots[i].collect(to)
	}
	for i := range u.Counters {
		collectCounters(&u.Counters[i], to)
	}
}

func (s Source) collect(to *sink) {
	to.gauge(sourceUp, number(s.Up), s.Name)
	if s.Took.Known {
		to.gauge(sourceTook, s.Took.Value.Seconds(), s.Name)
	}
	if !s.Succeeded.IsZero() {
		to.gauge(sourceSuccess, seconds(s.Succeeded), s.Name)
	}
	if s.Failures.Known {
		to.counter(sourceFailures, float64(s.Failures.Value), s.Name)
	}
}

func collectGPU(d *usage.DeviceUsage, to *sink) {
	u := string(d.GPU)
	if d.Memory.Known {
		to.gauge(gpuMemoryUsed, float64(d.Memory.Value.Used), u)
	}
	to.knownGauge(gpuPower, d.Power, u)
	to.knownCounter(gpuSM, d.Total.SM, u)
	to.knownCounter(gpuBusy, d.Total.Busy, u)
	to.knownCounter(gpuDRAM, d.Total.DRAM, u)
	to.knownCounter(gpuEnergy, d.Total.Energy, u)
	to.knownCounter(gpuRestEnergy, d.Total.UnattributedEnergy, u)
	collectBoard(u, &d.Board, to)
}

func collectBoard(u string, b *gpu.Board, to *sink) {
	const milli, mega = 1e-3, 1e6
	to.knownGauge(gpuPowerLimit, inUnits(b.PowerLimit, milli), u)
	to.knownGauge(gpuHeat, inUnits(b.Temperature, 1), u)
	to.knownGauge(gpuClock, inUnits(b.SMClock, mega), u, "sm")
	to.knownGauge(gpuClock, inUnits(b.MemoryClock, mega), u, "memory")
	to.knownCounter(gpuECC, inUnits(b.Corrected, 1), u, "corrected")
	to.knownCounter(gpuECC, inUnits(b.Uncorrected, 1), u, "uncorrected")
	if b.Limits.Known {
		for _, l := range gpu.AllClockLimits() {
			to.gauge(gpuLimited, number(b.Limits.Value&l.Bit != 0), u, l.Name)
		}
	}
}

func inUnits[T uint32 | uint64](m gpu.Measured[T], unit float64) gpu.Measured[float64] {
	return gpu.Measured[float64]{Value: float64(m.Value) * unit, Known: m.Known}
}

func collectMIG(d *usage.DeviceUsage, whole int, to *sink) {
	u, m := string(d.GPU), string(d.MIG)
	to.gauge(migInfo, 1, u, m, strconv.Itoa(d.GPUInstance))
	if d.Memory.Known {
		to.gauge(migMemory, float64(d.Memory.Value.Total), u, m)
		to.gauge(migMemoryUsed, float64(d.Memory.Value.Used), u, m)
	}
	to.knownCounter(migSM, d.Total.SM, u, m)
	if d.Multiprocessors > 0 && whole > 0 {
		to.gauge(migRatio, float64(d.Multiprocessors)/float64(whole), u, m)
	}
}

// owners are those that processes are counted by. One that ended while it was
// looked for counts as in no slot, and so does one that is not known yet.
var owners = []usage.Owner{usage.OwnerSlot, usage.OwnerServer, usage.OwnerNone}

func collectDevice(d *usage.DeviceUsage, to *sink) {
	u, m := string(d.GPU), string(d.MIG)
	to.counter(deviceSampled, d.Total.Sampled, u, m)
	to.knownCounter(deviceRest, d.Total.UnattributedSM, u, m)
	if d.Method != "" {
		to.counter(deviceBeyond, float64(d.BoundsExceeded), u, m)
		to.gauge(deviceActivity, 1, u, m, string(d.Method), activitySource(d))
		if d.MemoryBusy.Known {
			to.gauge(deviceContended, number(d.Contended), u)
		}
	}
	if d.Unlisted.Known {
		to.gauge(deviceUnlisted, float64(d.Unlisted.Value), u, m)
	}
	if !d.Processes.Known {
		return
	}
	count := map[usage.Owner]int{}
	for i := range d.Processes.Value {
		count[d.Processes.Value[i].Owner]++
	}
	count[usage.OwnerNone] += count[usage.OwnerEnded] + count[usage.OwnerUnknown]
	for _, o := range owners {
		to.gauge(deviceProcs, float64(count[o]), u, m, string(o))
	}
	if d.UnownedMemory.Known {
		to.gauge(deviceUnowned, float64(d.UnownedMemory.Value), u, m)
	}
}

// activitySource says who told the activity; the time with a kernel gives upper
// bounds only.
func activitySource(d *usage.DeviceUsage) string {
	switch {
	case d.ActivitySource != "":
		return d.ActivitySource
	case d.KernelTime.Known:
		return "kernel-time"
	}
	return "none"
}

func (s *Slot) collect(to *sink) {
	u, l := &s.Usage, &s.Labels
	name, g, m := u.Slot.Slot, string(u.GPU), string(u.MIG)
	to.gauge(slotInfo, 1, name, g, m, string(u.Method), l.ID, l.VO, l.User, l.Group)
	if !s.Admitted.IsZero() {
		to.gauge(slotAdmitted, seconds(s.Admitted), name, g, m)
	}
	if s.Budget.Known {
		to.gauge(slotBudget, float64(s.Budget.Value), name, g, m)
	}
	if u.Share > 0 {
		to.gauge(slotShare, u.Share, name, g, m)
	}
	if u.Cap > 0 {
		to.gauge(slotCap, u.Cap, name, g, m)
	}
	if u.Memory.Known {
		to.gauge(slotUsed, float64(u.Memory.Value), name, g, m)
		to.gauge(slotProcs, float64(u.Processes), name, g, m)
	}
	if u.Peak.Known {
		to.gauge(slotPeak, float64(u.Peak.Value), name, g, m)
	}
}

func collectCounters(c *usage.SlotCounters, to *sink) {
	t, name, g, m := &c.Total, c.Slot, string(c.GPU), string(c.MIG)
	to.counter(slotAllocated, t.Allocated, name, g, m)
	to.knownCounter(slotSM, t.SM.Estimate, name, g, m)
	to.knownCounter(slotSMMin, t.SM.Lower, name, g, m)
	to.knownCounter(slotSMMax, t.SM.Upper, name, g, m)
	to.knownCounter(slotSMLikelyMin, t.Likely.Lower, name, g, m)
	to.knownCounter(slotSMLikelyMax, t.Likely.Upper, name, g, m)
	to.knownCounter(slotEnergy, t.Energy.Estimate, name, g, m)
	to.knownCounter(slotEnergyMin, t.Energy.Lower, name, g, m)
	to.knownCounter(slotEnergyMax, t.Energy.Upper, name, g, m)
}

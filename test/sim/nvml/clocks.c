/* clocks.c: clocks, performance state, and what holds the clocks back. */
#include "monitor.h"

enum { IDLE_MEMORY_MHZ = 405 }; /* of boards with GDDR; HBM is never slowed down */

/* MHz of public nvidia-smi -q output; video_max in per cent of the highest SM clock; applications 0: the highest. */
static const struct rates {
	unsigned arch, idle, video_idle, video_max, applications;
} rates[] = {
	{ NVML_DEVICE_ARCH_VOLTA, 135, 555, 90, 1230 },
	{ NVML_DEVICE_ARCH_TURING, 300, 540, 92, 585 },
	{ NVML_DEVICE_ARCH_AMPERE, 210, 585, 91, 1095 },
	{ NVML_DEVICE_ARCH_HOPPER, 345, 765, 78, 0 },
	{ NVML_DEVICE_ARCH_BLACKWELL, 180, 600, 78, 0 }, /* inferred */
};

static const struct rates *rates_of(const struct sim_call *c)
{
	const struct rates *found = &rates[0];
	for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
		if (rates[i].arch <= c->m->arch)
			found = &rates[i];
	return found;
}

static int has_hbm(const struct sim_call *c) { return c->m->bus_width >= 1024; }

static unsigned highest(const struct sim_call *c, nvmlClockType_t type)
{
	return type == NVML_CLOCK_MEM ? c->m->clock_memory : type == NVML_CLOCK_VIDEO ? c->m->clock_sm * rates_of(c)->video_max / 100 :
		c->m->clock_sm;
}

unsigned sim_clock(const struct sim_call *c, nvmlClockType_t type, uint32_t load)
{
	uint64_t set = type == NVML_CLOCK_MEM ? c->g->clock_memory_set : c->g->clock_sm_set;
	if (set != SIM_UNSET)
		return (unsigned)set;
	if (load)
		return highest(c, type);
	if (type == NVML_CLOCK_MEM)
		return has_hbm(c) ? c->m->clock_memory : IDLE_MEMORY_MHZ;
	return type == NVML_CLOCK_VIDEO ? rates_of(c)->video_idle : rates_of(c)->idle;
}

enum which { NOW, HIGHEST, APPLICATIONS };

static unsigned of(const struct sim_call *c, nvmlClockType_t type, enum which which)
{
	unsigned applications = type == NVML_CLOCK_MEM || type == NVML_CLOCK_VIDEO ? 0 : rates_of(c)->applications;
	if (which == NOW)
		return sim_clock(c, type, sim_kernel_load(c->n, c->gpu));
	return which == APPLICATIONS && applications ? applications : highest(c, type);
}

static nvmlReturn_t clock_of(const char *call, nvmlDevice_t device, nvmlClockType_t type, enum which which, unsigned int *clock)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!clock || (unsigned)type >= NVML_CLOCK_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*clock = of(&c, type, which);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return clock_of(__func__, device, type, NOW, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return clock_of(__func__, device, type, HIGHEST, clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return clock_of(__func__, device, clockType, APPLICATIONS, clockMHz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return clock_of(__func__, device, clockType, APPLICATIONS, clockMHz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
	return clock_of(__func__, device, clockType, HIGHEST, clockMHz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId, unsigned int *clockMHz)
{
	if ((unsigned)clockId >= NVML_CLOCK_ID_COUNT)
		clockMHz = NULL; /* told after the handle was checked, as ever */
	return clock_of(__func__, device, clockType, clockId == NVML_CLOCK_ID_CURRENT ? NOW :
		clockId == NVML_CLOCK_ID_CUSTOMER_BOOST_MAX ? HIGHEST : APPLICATIONS, clockMHz);
}

/* Boards with HBM stay in P0, a T4 rests in P8 (public listings). */
static nvmlReturn_t performance(const char *call, nvmlDevice_t device, nvmlPstates_t *pState)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !pState)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*pState = has_hbm(&c) || sim_kernel_load(c.n, c.gpu) ? NVML_PSTATE_0 : NVML_PSTATE_8;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState) { return performance(__func__, device, pState); }
nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pState) { return performance(__func__, device, pState); }

static nvmlReturn_t reasons(const char *call, nvmlDevice_t device, unsigned long long *mask)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !mask)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		*mask = c.g->throttle_reasons;
		if (!sim_kernel_load(c.n, c.gpu))
			*mask |= nvmlClocksEventReasonGpuIdle;
		else if (sim_power(c.n, c.gpu) >= c.g->power_limit)
			*mask |= nvmlClocksEventReasonSwPowerCap;
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *mask) { return reasons(__func__, device, mask); }
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *mask) { return reasons(__func__, device, mask); }

static nvmlReturn_t supported(const char *call, nvmlDevice_t device, unsigned long long *mask)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !mask)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*mask = 0x1ff; /* idle … display clock setting */
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *mask) { return supported(__func__, device, mask); }
nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *mask) { return supported(__func__, device, mask); }

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *time)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && (!time || (unsigned)policy >= NVML_PERF_POLICY_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		sim_settle(c.w);
		unsigned long long held = policy == NVML_PERF_POLICY_POWER ? c.g->violation_ns[0] : policy == NVML_PERF_POLICY_THERMAL ?
			c.g->violation_ns[1] : policy == NVML_PERF_POLICY_BOARD_LIMIT ? c.g->violation_ns[2] : 0;
		*time = (nvmlViolationTime_t){ .referenceTime = sim_now(c.n), .violationTime = held };
	}
	return sim_leave(&c, r);
}

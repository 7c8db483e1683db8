/* quiet.c: what stays zero on a node of compute jobs: video sessions, PCIe replays, protected memory. Real boards list
 * zeros here, not "N/A" (nvidia-smi -q of V100 to H200). */
#include "monitor.h"

/* clear answers a query of words (unsigned int) that are all zero. */
static nvmlReturn_t clear(const char *call, nvmlDevice_t device, unsigned int *first, unsigned int *second, unsigned int *third)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_ANY);
	if (r == NVML_SUCCESS && (!first || !second || !third))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*first = *second = *third = 0;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessionCount, unsigned int *averageFps, unsigned int *averageLatency)
{
	return clear(__func__, device, sessionCount, averageFps, averageLatency);
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *sessionCount, nvmlEncoderSessionInfo_t *sessionInfos)
{
	(void)sessionInfos; /* none to write */
	return clear(__func__, device, sessionCount, sessionCount, sessionCount);
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *fbcStats)
{
	return clear(__func__, device, fbcStats ? &fbcStats->sessionsCount : NULL, fbcStats ? &fbcStats->averageFPS : NULL,
		fbcStats ? &fbcStats->averageLatency : NULL);
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *sessionCount, nvmlFBCSessionInfo_t *sessionInfo)
{
	(void)sessionInfo;
	return clear(__func__, device, sessionCount, sessionCount, sessionCount);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value)
{
	return clear(__func__, device, value, value, value);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value)
{
	return clear(__func__, device, value, value, (unsigned)counter < NVML_PCIE_UTIL_COUNT ? value : NULL);
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !memory)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.m->arch < NVML_DEVICE_ARCH_AMPERE)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*memory = (nvmlMemory_t){ 0 };
	return sim_leave(&c, r);
}

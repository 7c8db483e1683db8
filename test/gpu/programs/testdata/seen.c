/* seen.c holds src/gpusee.c to NVIDIA's nvml.h. It only has to compile. */
#include <nvml.h>
#include <stddef.h>

#define main gpusee_main
#include "gpusee.c"

#define AT(ours, member, theirs, its) \
	_Static_assert(offsetof(struct ours, member) == offsetof(theirs, its), #theirs "." #its); \
	_Static_assert(sizeof ((struct ours *)0)->member == sizeof ((theirs *)0)->its, #theirs "." #its)

_Static_assert(sizeof(struct memory) == sizeof(nvmlMemory_t), "nvmlMemory_t");
AT(memory, total, nvmlMemory_t, total);
AT(memory, used, nvmlMemory_t, used);
_Static_assert(sizeof(struct process) == sizeof(nvmlProcessInfo_v2_t) && sizeof(struct process) == sizeof(nvmlProcessInfo_t), "nvmlProcessInfo_t");
AT(process, pid, nvmlProcessInfo_t, pid);
AT(process, used, nvmlProcessInfo_t, usedGpuMemory);
_Static_assert(sizeof(struct sample) == sizeof(nvmlProcessUtilizationSample_t), "nvmlProcessUtilizationSample_t");
AT(sample, pid, nvmlProcessUtilizationSample_t, pid);
AT(sample, stamp, nvmlProcessUtilizationSample_t, timeStamp);
AT(sample, sm, nvmlProcessUtilizationSample_t, smUtil);
_Static_assert(NVML_VALUE_NOT_AVAILABLE == -1, "an unknown amount of memory is all ones");
_Static_assert(sizeof(device) == sizeof(nvmlDevice_t), "nvmlDevice_t");

/* Every call by the address that it has there: a wrong number or kind of arguments does not compile. */
int calls(nvmlDevice_t d, unsigned *n, unsigned long long *v);
int calls(nvmlDevice_t d, unsigned *n, unsigned long long *v)
{
	nvmlMemory_t m;
	nvmlProcessInfo_t p[1];
	nvmlProcessUtilizationSample_t s[1];
	return (int)nvmlInit_v2() + (int)nvmlDeviceGetHandleByUUID("GPU-0", &d) + (int)nvmlDeviceGetMemoryInfo(d, &m) + (int)nvmlDeviceGetPowerUsage(d, n) +
		(int)nvmlDeviceGetComputeMode(d, (nvmlComputeMode_t *)n) + (int)nvmlDeviceGetTotalEnergyConsumption(d, v) +
		(int)nvmlDeviceGetComputeRunningProcesses_v3(d, n, p) + (int)nvmlDeviceGetMPSComputeRunningProcesses_v3(d, n, p) +
		(int)nvmlDeviceGetProcessUtilization(d, s, n, *v);
}

/* system.c: versions, error strings, and other answers that name no device. */
#include "sim.h"

#include <stdio.h>

/* The texts are those of the library of driver 555. */
const char *nvmlErrorString(nvmlReturn_t result)
{
	static const char *const texts[] = { "Success", "Uninitialized", "Invalid Argument", "Not Supported",
		"Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
		"Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
		"Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
		"Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
		"vGPU ECC not supported", "Insufficient Resources", "Invalid Frequency", "Argument version mismatch",
		"Requested functionality has been deprecated", "System is not in ready state", "No supported GPUs were found",
		"Resource not in correct state to perform requested operation" };
	unsigned i = (unsigned)result;
	return i < sizeof texts / sizeof texts[0] ? texts[i] : "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter_system(&c, __func__, SIM_ANY);
	return sim_leave(&c, r == NVML_SUCCESS ? sim_string(version, length, c.n->driver) : r);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter_system(&c, __func__, SIM_ANY);
	char s[64];
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	snprintf(s, sizeof s, "%u.%s", c.n->cuda / 1000, c.n->driver); /* "12.550.163.01" */
	return sim_leave(&c, sim_string(version, length, s));
}

static nvmlReturn_t cuda_version(const char *call, int *version)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter_system(&c, call, SIM_ANY);
	if (r == NVML_SUCCESS && !version)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*version = (int)c.n->cuda;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return cuda_version(__func__, version); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_version(__func__, version); }

static nvmlReturn_t none(const char *call, unsigned int *count)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter_system(&c, call, SIM_ANY);
	if (r == NVML_SUCCESS && !count)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*count = 0;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count) { return none(__func__, count); }
nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) { return none(__func__, count); }

/* A header of its own hides this older name behind a macro. */
#undef nvmlGetBlacklistDeviceCount
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *count);
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *count) { return none(__func__, count); }

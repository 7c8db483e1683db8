/* energy.c: power, energy, temperature. Of whole GPUs: a MIG device has no sensor of its own. */
#include "monitor.h"

/* Energy since the driver was loaded: an integral over the load (meter.c) that never falls, not power x time. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && !energy)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.m->arch < NVML_DEVICE_ARCH_VOLTA)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		sim_settle(c.w);
		*energy = c.g->energy_uj / 1000;
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !power)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*power = (unsigned)sim_power(c.n, c.gpu);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !mode)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*mode = NVML_FEATURE_ENABLED;
	return sim_leave(&c, r);
}

enum limit { CURRENT, DEFAULT };

static nvmlReturn_t limit_of(const char *call, nvmlDevice_t device, enum limit which, unsigned int *limit)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !limit)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*limit = (unsigned)(which == CURRENT ? c.g->power_limit : c.g->power_limit_default);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit) { return limit_of(__func__, device, CURRENT, limit); }
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit) { return limit_of(__func__, device, CURRENT, limit); }

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *defaultLimit)
{
	return limit_of(__func__, device, DEFAULT, defaultLimit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *minLimit, unsigned int *maxLimit)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!minLimit || !maxLimit))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		*minLimit = (unsigned)c.g->power_limit_min;
		*maxLimit = (unsigned)c.g->power_limit_max;
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && (limit < c.g->power_limit_min || limit > c.g->power_limit_max))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		sim_settle(c.w); /* what was drawn so far was drawn under the old limit */
		c.wg->power_limit = limit;
	}
	return sim_leave(&c, r);
}

static nvmlReturn_t temperature(const char *call, nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *degrees)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && (!degrees || sensor != NVML_TEMPERATURE_GPU))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		sim_settle(c.w);
		*degrees = sim_temperature(c.n, c.gpu);
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
	return temperature(__func__, device, sensorType, temp);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *t)
{
	unsigned int degrees = 0;
	if (t && t->version != nvmlTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t r = temperature(__func__, device, t ? t->sensorType : NVML_TEMPERATURE_GPU, t ? &degrees : NULL);
	if (r == NVML_SUCCESS)
		t->temperature = (int)degrees;
	return r;
}

/* Shutdown, slowdown, memory, GPU: nvidia-smi -q of V100, T4 and A100; Hopper from its limits below and its T.Limit. */
static const unsigned *thresholds(const struct sim_call *c)
{
	static const unsigned volta[] = { 90, 87, 85, 83 }, turing[] = { 96, 93, 0, 85 }, ampere[] = { 92, 89, 95, 85 }, hopper[] = { 95, 89, 95, 87 };
	return c->m->arch <= NVML_DEVICE_ARCH_VOLTA ? volta : c->m->arch == NVML_DEVICE_ARCH_TURING ? turing :
		c->m->arch == NVML_DEVICE_ARCH_AMPERE ? ampere : hopper;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type, unsigned int *temp)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!temp || (unsigned)type >= NVML_TEMPERATURE_THRESHOLD_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && (type > NVML_TEMPERATURE_THRESHOLD_GPU_MAX || !thresholds(&c)[type]))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*temp = thresholds(&c)[type];
	return sim_leave(&c, r);
}

/* "T.Limit": the degrees that are left; it and the current temperature make 87 on H100 and H200 (listings). */
nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && !margin)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && margin->version != nvmlMarginTemperature_v1)
		r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (r == NVML_SUCCESS && c.m->arch < NVML_DEVICE_ARCH_ADA)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		sim_settle(c.w);
		margin->marginTemperature = (int)thresholds(&c)[NVML_TEMPERATURE_THRESHOLD_GPU_MAX] - (int)sim_temperature(c.n, c.gpu);
	}
	return sim_leave(&c, r);
}

/* Passive boards. */
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *numFans)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !numFans)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*numFans = 0;
	return sim_leave(&c, r);
}

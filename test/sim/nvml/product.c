/* product.c: what kind of GPU it is, and the modes that root sets: compute, persistence. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

/* One number of the model or the GPU: most calls of this file. */
static nvmlReturn_t number(const char *call, nvmlDevice_t device, unsigned how, void *out, uint32_t (*get)(const struct sim_call *c))
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, how);
	if (r == NVML_SUCCESS && !out)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		uint32_t v = get(&c);
		memcpy(out, &v, sizeof v);
	}
	return sim_leave(&c, r);
}

static uint32_t minor_of(const struct sim_call *c) { return c->g->minor; }
static uint32_t brand_of(const struct sim_call *c) { return c->m->brand; }
static uint32_t arch_of(const struct sim_call *c) { return c->m->arch; }
static uint32_t cores_of(const struct sim_call *c) { return c->m->sm * c->m->cores_per_sm; }
static uint32_t width_of(const struct sim_call *c) { return c->m->bus_width; }
static uint32_t board_of(const struct sim_call *c) { return c->g->pci_bus << 8; }
static uint32_t module_of(const struct sim_call *c) { return c->gpu + 1; }
static uint32_t gen_of(const struct sim_call *c) { return c->m->pcie_gen; }
static uint32_t lanes_of(const struct sim_call *c) { return (void)c, 16; }
static uint32_t zero_of(const struct sim_call *c) { return (void)c, 0; }
static uint32_t persistence_of(const struct sim_call *c) { return c->g->persistence; }
static uint32_t source_of(const struct sim_call *c) { return (void)c, NVML_POWER_SOURCE_AC; }

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, minor_of); }
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t d, nvmlBrandType_t *v) { return number(__func__, d, SIM_ANY, v, brand_of); }
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *v) { return number(__func__, d, SIM_ANY, v, arch_of); }
nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, cores_of); }
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, width_of); }
nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, board_of); }
nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, module_of); }
nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, zero_of); }
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, gen_of); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, gen_of); }
nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, gen_of); }
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, lanes_of); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned int *v) { return number(__func__, d, SIM_WHOLE, v, lanes_of); }
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t d, nvmlEnableState_t *v) { return number(__func__, d, SIM_WHOLE, v, persistence_of); }
nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t d, nvmlEnableState_t *v) { return number(__func__, d, SIM_WHOLE, v, zero_of); }
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t d, nvmlEnableState_t *v) { return number(__func__, d, SIM_WHOLE, v, zero_of); }
nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t d, nvmlPowerSource_t *v) { return number(__func__, d, SIM_WHOLE, v, source_of); }
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t d, nvmlGpuVirtualizationMode_t *v)
{
	return number(__func__, d, SIM_WHOLE, v, zero_of); /* 0: bare metal */
}

/* One text of the GPU. */
static nvmlReturn_t text(const char *call, nvmlDevice_t device, char *room, unsigned int length, const char *(*get)(const struct sim_call *c))
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE);
	return sim_leave(&c, r == NVML_SUCCESS ? sim_string(room, length, get(&c)) : r);
}

static const char *serial_of(const struct sim_call *c) { return c->g->serial; }
static const char *driver_of(const struct sim_call *c) { return c->n->driver; } /* the GSP's firmware comes with the driver */
static const char *vbios_of(const struct sim_call *c) { return (void)c, "00.00.00.00.00"; }

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *s, unsigned int len) { return text(__func__, d, s, len, serial_of); }
nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t d, char *s, unsigned int len) { return text(__func__, d, s, len, vbios_of); }
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t d, char *s) { return text(__func__, d, s, 64, driver_of); }

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *by_default)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!enabled || !by_default))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*enabled = *by_default = c.m->arch >= NVML_DEVICE_ARCH_TURING;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && (!major || !minor))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		*major = (int)c.m->cc_major;
		*minor = (int)c.m->cc_minor;
	}
	return sim_leave(&c, r);
}

/* A MIG device belongs to its parent's name: "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb". */
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct sim_call c;
	char s[160];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	snprintf(s, sizeof s, "%s", c.g->name);
	if (c.gi != SIM_NONE) {
		const struct sim_gi *gi = sim_gi(c.g, c.gi);
		char ci[48];
		sim_ci_name(ci, sizeof ci, c.m, gi, sim_ci(gi, c.ci)->profile);
		snprintf(s, sizeof s, "%s %s", c.g->name, ci);
	}
	return sim_leave(&c, sim_string(name, length, s));
}

/* With MIG on the mode belongs to the MIG device (nvml.h); the parent still reads as Default (MIG User Guide). */
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && !mode)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*mode = c.gi == SIM_NONE ? c.g->compute_mode : sim_ci(sim_gi(c.g, c.gi), c.ci)->compute_mode;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && (unsigned)mode >= NVML_COMPUTEMODE_COUNT)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
		r = NVML_ERROR_NOT_SUPPORTED; /* gone since CUDA 8 */
	if (r == NVML_SUCCESS && c.gi == SIM_NONE && c.g->mig_current == NVML_DEVICE_MIG_ENABLE)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*(c.gi == SIM_NONE ? &c.wg->compute_mode : &sim_ci(sim_gi(c.wg, c.gi), c.ci)->compute_mode) = mode;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && mode != NVML_FEATURE_ENABLED && mode != NVML_FEATURE_DISABLED)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		c.wg->persistence = mode;
	return sim_leave(&c, r);
}

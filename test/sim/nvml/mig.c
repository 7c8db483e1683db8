/* mig.c: MIG mode, and MIG devices: a MIG device is a compute instance. */
#include "mig.h"

#include <string.h>

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && (!current || !pending))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !c.m->units)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		*current = c.g->mig_current;
		*pending = c.g->mig_pending;
	}
	return sim_leave(&c, r);
}

static int busy(const struct sim_node *n, uint32_t gpu)
{
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (n->process[i].used && n->process[i].gpu == gpu)
			return 1;
	return 0;
}

/* Ampere resets the GPU for the change, Hopper and later do not (MIG User Guide, Enable MIG Mode). */
static nvmlReturn_t activate(const struct sim_call *c)
{
	if (busy(c->n, c->gpu))
		return NVML_ERROR_IN_USE;
	return c->m->reset_required && c->g->reset_blocked ? NVML_ERROR_RESET_REQUIRED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_PARENT | SIM_ROOT | SIM_WRITE);
	if (r == NVML_SUCCESS && (!activation || mode > NVML_DEVICE_MIG_ENABLE))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !c.m->units)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	int same = c.g->mig_current == mode;
	*activation = same ? NVML_SUCCESS : activate(&c);
	if (same || *activation == NVML_SUCCESS || c.m->reset_required)
		c.wg->mig_pending = mode; /* without a reset nothing stays pending: the caller tries again */
	if (!same && *activation == NVML_SUCCESS) {
		c.wg->mig_current = mode;
		memset(c.wg->gi, 0, sizeof c.wg->gi);
		c.wg->compute_mode = NVML_COMPUTEMODE_DEFAULT;
		sim_event(c.w, c.gpu, SIM_NONE, SIM_NONE, nvmlEventMigConfigChange, 0);
	}
	return sim_leave(&c, NVML_SUCCESS);
}

/* 0 unless MIG is on: HTCondor takes any other number for a MIG parent and skips the GPU. */
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_PARENT);
	if (r == NVML_SUCCESS && !count)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*count = c.g->mig_current == NVML_DEVICE_MIG_ENABLE ? c.m->slices : 0;
	return sim_leave(&c, r);
}

/* MIG devices in the order of their GPU instance's id, then of their own: an index changes hands when instances come
 * and go, as public listings show. */
static nvmlDevice_t nth(const struct sim_call *c, unsigned int index)
{
	for (uint32_t gi = 0; gi < SIM_GI_IDS; gi++)
		for (uint32_t ci = 0; ci < SIM_CIS; ci++) {
			struct sim_gi *i = sim_gi(c->g, gi);
			if (i && sim_ci(i, ci) && index-- == 0)
				return sim_mig_handle(c->gpu, gi, ci);
		}
	return NULL;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_PARENT | SIM_MIG);
	if (r == NVML_SUCCESS && (!mig || index >= c.m->slices))
		r = NVML_ERROR_INVALID_ARGUMENT;
	nvmlDevice_t found = r == NVML_SUCCESS ? nth(&c, index) : NULL;
	if (r == NVML_SUCCESS && !found)
		r = NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		*mig = found;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && !is)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*is = sim_is_mig_handle(device) != 0;
	return sim_leave(&c, r);
}

/* Of a MIG device: its index below the parent (nvidia-smi asks for it before it shows one). */
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && !index)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*index = c.gpu;
	for (unsigned int i = 0; r == NVML_SUCCESS && c.gi != SIM_NONE && i < c.m->slices; i++)
		if (nth(&c, i) == device)
			*index = i;
	return sim_leave(&c, r);
}

static nvmlReturn_t instance_id(const char *call, nvmlDevice_t device, unsigned int *id, int compute)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_ANY);
	if (r == NVML_SUCCESS && !id)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.gi == SIM_NONE)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		*id = compute ? c.ci : c.gi;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *id) { return instance_id(__func__, d, id, 0); }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned int *id) { return instance_id(__func__, d, id, 1); }

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, mig, SIM_ANY);
	if (r == NVML_SUCCESS && (!device || c.gi == SIM_NONE))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*device = sim_handle(c.gpu);
	return sim_leave(&c, r);
}

static nvmlReturn_t attributes(const char *call, nvmlDevice_t device, nvmlDeviceAttributes_t *a)
{
	struct sim_call c;
	struct sim_ci_profile k;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_ANY);
	if (r == NVML_SUCCESS && !a)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.gi == SIM_NONE)
		r = NVML_ERROR_NOT_SUPPORTED; /* nvml.h: MIG device handles only */
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	const struct sim_gi *gi = sim_gi(c.g, c.gi);
	const struct sim_profile *p = sim_profile(c.m, gi->profile);
	if (!sim_ci_profile(&k, c.m, gi, sim_ci(gi, c.ci)->profile))
		return sim_leave(&c, NVML_ERROR_UNKNOWN);
	*a = (nvmlDeviceAttributes_t){ .multiprocessorCount = k.sm, .sharedCopyEngineCount = p->copy, .sharedDecoderCount = p->dec,
		.sharedEncoderCount = p->enc, .sharedJpegCount = p->jpeg, .sharedOfaCount = p->ofa,
		.gpuInstanceSliceCount = p->slices, .computeInstanceSliceCount = k.slices, .memorySizeMB = p->mib };
	return sim_leave(&c, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) { return attributes(__func__, d, a); }
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
	nvmlDeviceAttributes_t whole; /* the older structure ends before the memory */
	nvmlReturn_t r = a ? attributes(__func__, d, &whole) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		memcpy(a, &whole, offsetof(nvmlDeviceAttributes_t, memorySizeMB));
	return r;
}

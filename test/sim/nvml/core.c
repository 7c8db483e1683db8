/* core.c: init and shutdown, handles, entering and leaving a call. */
#include "sim.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NVML counts inits; other threads may call while one shuts down. */
static atomic_int inits;

int sim_initialised(void) { return atomic_load(&inits) > 0; }
int sim_root(void) { return geteuid() == 0; }

static nvmlReturn_t init(void)
{
	sim_hold("nvmlInit_v2", SIM_NONE);
	const struct sim_node *n = sim_read();
	if (!n) /* no node: as on a machine without driver */
		return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
	nvmlReturn_t r = n->driver_missing ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
	sim_end();
	if (r == NVML_SUCCESS)
		r = sim_planned("nvmlInit_v2", SIM_NONE);
	if (r == NVML_SUCCESS)
		atomic_fetch_add(&inits, 1);
	return r;
}

nvmlReturn_t nvmlInit_v2(void) { return init(); }
nvmlReturn_t nvmlInit(void) { return init(); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags; /* NO_GPUS and NO_ATTACH only make it quicker */
	return init();
}

nvmlReturn_t nvmlShutdown(void)
{
	if (atomic_fetch_sub(&inits, 1) > 0)
		return NVML_SUCCESS;
	atomic_fetch_add(&inits, 1);
	return NVML_ERROR_UNINITIALIZED;
}

struct handle { uint32_t gpu, gi, ci; };

static struct {
	struct handle gpu[SIM_GPUS];
	struct handle mig[SIM_GPUS][SIM_GI_IDS][SIM_CIS];
	struct handle gi[SIM_GPUS][SIM_GI_IDS];
	struct handle ci[SIM_GPUS][SIM_GI_IDS][SIM_CIS];
} table;

static void *fill(struct handle *h, uint32_t gpu, uint32_t gi, uint32_t ci)
{
	*h = (struct handle){ gpu, gi, ci }; /* always the same three words: threads may race */
	return h;
}

nvmlDevice_t sim_handle(uint32_t gpu) { return fill(&table.gpu[gpu], gpu, SIM_NONE, SIM_NONE); }
nvmlDevice_t sim_mig_handle(uint32_t gpu, uint32_t gi, uint32_t ci) { return fill(&table.mig[gpu][gi][ci], gpu, gi, ci); }
nvmlGpuInstance_t sim_gi_handle(uint32_t gpu, uint32_t gi) { return fill(&table.gi[gpu][gi], gpu, gi, SIM_NONE); }
nvmlComputeInstance_t sim_ci_handle(uint32_t gpu, uint32_t gi, uint32_t ci) { return fill(&table.ci[gpu][gi][ci], gpu, gi, ci); }

static int inside(const void *h, const void *start, size_t size)
{
	size_t at = (size_t)((const char *)h - (const char *)start);
	return (const char *)h >= (const char *)start && at < size && at % sizeof(struct handle) == 0;
}

int sim_is_mig_handle(const void *handle) { return inside(handle, table.mig, sizeof table.mig); }

int sim_locate(const void *handle, uint32_t *gpu, uint32_t *gi, uint32_t *ci)
{
	if (!inside(handle, &table, sizeof table))
		return 0;
	const struct handle *h = handle;
	*gpu = h->gpu;
	*gi = h->gi;
	*ci = h->ci;
	return 1;
}

static nvmlReturn_t take(struct sim_call *c, unsigned how)
{
	c->n = how & SIM_WRITE ? (c->w = sim_write()) : sim_read();
	if (!c->n)
		return NVML_ERROR_UNKNOWN;
	return how & SIM_ROOT && !sim_root() ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
}

nvmlReturn_t sim_enter_system(struct sim_call *c, const char *call, unsigned how)
{
	*c = (struct sim_call){ .gpu = SIM_NONE, .gi = SIM_NONE, .ci = SIM_NONE };
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	sim_hold(call, SIM_NONE);
	nvmlReturn_t r = sim_planned(call, SIM_NONE);
	return r == NVML_SUCCESS ? take(c, how) : r;
}

/* NVML_MPS_DEVICE_ENUMERATION=1 gives a process the view of an MPS client, in which most calls are NOT_SUPPORTED (NVML
 * documentation). Which ones are left is not published; here it is what names a device, and its memory. */
static int mps_view_lacks(const char *call)
{
	static const char *const left[] = { "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetIndex", "nvmlDeviceGetMemoryInfo",
		"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMinorNumber" };
	const char *on = getenv("NVML_MPS_DEVICE_ENUMERATION");
	if (!on || strcmp(on, "1") != 0)
		return 0;
	for (size_t i = 0; i < sizeof left / sizeof *left; i++)
		if (strcmp(left[i], call) == 0)
			return 0;
	return 1;
}

static nvmlReturn_t allowed(const struct sim_call *c, nvmlDevice_t device, unsigned how)
{
	if (c->gpu >= c->n->gpu_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (c->g->lost)
		return NVML_ERROR_GPU_IS_LOST;
	if (sim_is_mig_handle(device)) {
		struct sim_gi *gi = sim_gi(c->g, c->gi);
		if (!gi || !sim_ci(gi, c->ci) || how & SIM_PARENT)
			return NVML_ERROR_INVALID_ARGUMENT;
		if (how & SIM_WHOLE)
			return NVML_ERROR_NOT_SUPPORTED;
	}
	if (how & SIM_NOT_MIG && c->g->mig_current == NVML_DEVICE_MIG_ENABLE)
		return NVML_ERROR_NOT_SUPPORTED;
	if (how & SIM_MIG && c->g->mig_current != NVML_DEVICE_MIG_ENABLE)
		return NVML_ERROR_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_enter(struct sim_call *c, const char *call, nvmlDevice_t device, unsigned how)
{
	*c = (struct sim_call){ .gpu = SIM_NONE };
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (!sim_locate(device, &c->gpu, &c->gi, &c->ci))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (mps_view_lacks(call))
		return NVML_ERROR_NOT_SUPPORTED;
	sim_hold(call, c->gpu);
	nvmlReturn_t r = sim_planned(call, c->gpu);
	if (r == NVML_SUCCESS)
		r = take(c, how);
	if (r != NVML_SUCCESS)
		return r;
	c->g = &c->n->gpu[c->gpu];
	c->wg = c->w ? &c->w->gpu[c->gpu] : NULL;
	c->m = sim_model(c->g->model);
	return c->m ? allowed(c, device, how) : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t sim_leave(struct sim_call *c, nvmlReturn_t r)
{
	if (!c->n)
		return r;
	if (r == NVML_SUCCESS)
		sim_end();
	else
		sim_abort();
	c->n = NULL;
	return r;
}

nvmlReturn_t sim_list(const void *room, unsigned int *count, unsigned int have)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = have > 0 && (!room || *count < have) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*count = have;
	return r;
}

nvmlReturn_t sim_string(char *room, unsigned int length, const char *s)
{
	if (!room)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(s) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(room, s);
	return NVML_SUCCESS;
}

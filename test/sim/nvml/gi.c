/* gi.c: GPU instances: profiles, placements, capacity, life. */
#include "mig.h"

#include <stdio.h>
#include <string.h>

/* Profiles are asked for by NVML's enum, and answered with the driver's id: the trap that careless callers fall in. */
static const struct sim_profile *by_kind(const struct sim_call *c, uint32_t kind)
{
	for (uint32_t i = 0; i < c->m->profile_count; i++)
		if (c->m->profiles[i].kind == kind && sim_offered(c->n, &c->m->profiles[i]))
			return &c->m->profiles[i];
	return NULL;
}

static const struct sim_profile *by_id(const struct sim_call *c, uint32_t id)
{
	const struct sim_profile *p = sim_profile(c->m, id);
	return p && sim_offered(c->n, p) ? p : NULL;
}

/* Any user, MIG on or off. */
static nvmlReturn_t enter_kind(struct sim_call *c, const char *call, nvmlDevice_t d, unsigned int kind, const void *info,
	const struct sim_profile **p)
{
	nvmlReturn_t r = sim_enter(c, call, d, SIM_PARENT);
	if (r == NVML_SUCCESS && (!info || kind >= NVML_GPU_INSTANCE_PROFILE_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !(*p = by_kind(c, kind)))
		r = NVML_ERROR_NOT_SUPPORTED;
	return r;
}

#define FILL(info, p) do { \
	(info)->id = (p)->id; (info)->sliceCount = (p)->slices; (info)->instanceCount = (p)->max; \
	(info)->multiprocessorCount = (p)->sm; (info)->copyEngineCount = (p)->copy; (info)->decoderCount = (p)->dec; \
	(info)->encoderCount = (p)->enc; (info)->jpegCount = (p)->jpeg; (info)->ofaCount = (p)->ofa; \
	(info)->memorySizeMB = (p)->mib; \
} while (0)

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t d, unsigned int kind, nvmlGpuInstanceProfileInfo_t *info)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	nvmlReturn_t r = enter_kind(&c, __func__, d, kind, info, &p);
	if (r == NVML_SUCCESS) {
		memset(info, 0, sizeof *info);
		FILL(info, p);
	}
	return sim_leave(&c, r);
}

static nvmlReturn_t fill_versioned(nvmlGpuInstanceProfileInfo_v2_t *info, const struct sim_profile *p)
{
	nvmlGpuInstanceProfileInfo_v3_t *v3 = (nvmlGpuInstanceProfileInfo_v3_t *)info;
	if (info->version == nvmlGpuInstanceProfileInfo_v2) {
		info->isP2pSupported = 0;
		FILL(info, p);
		snprintf(info->name, sizeof info->name, "MIG %s", p->name);
		return NVML_SUCCESS;
	}
	if (info->version != nvmlGpuInstanceProfileInfo_v3)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FILL(v3, p);
	snprintf(v3->name, sizeof v3->name, "MIG %s", p->name);
	v3->capabilities = strstr(p->name, "+gfx") ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t d, unsigned int kind, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	nvmlReturn_t r = enter_kind(&c, __func__, d, kind, info, &p);
	return sim_leave(&c, r == NVML_SUCCESS ? fill_versioned(info, p) : r);
}

/* Calls that want the driver's id. */
static nvmlReturn_t enter_id(struct sim_call *c, const char *call, nvmlDevice_t d, unsigned int id, const void *out, unsigned how,
	const struct sim_profile **p)
{
	nvmlReturn_t r = sim_enter(c, call, d, SIM_PARENT | how);
	if (r == NVML_SUCCESS && !c->m->units)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS && (!out || !(*p = by_id(c, id))))
		r = NVML_ERROR_INVALID_ARGUMENT;
	return r;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t d, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	nvmlReturn_t r = enter_id(&c, __func__, d, id, info, SIM_ANY, &p);
	return sim_leave(&c, r == NVML_SUCCESS ? fill_versioned(info, p) : r);
}

static nvmlReturn_t placements(const char *call, nvmlDevice_t d, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count,
	int sized)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	nvmlReturn_t r = enter_id(&c, call, d, id, count, SIM_ROOT, &p);
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	unsigned int have = (unsigned)__builtin_popcount(p->starts), room = sized ? *count : have, i = 0;
	*count = have;
	if (out && room < have)
		r = NVML_ERROR_INSUFFICIENT_SIZE;
	for (uint32_t s = 0; out && r == NVML_SUCCESS && s < 32; s++)
		if (p->starts >> s & 1)
			out[i++] = (nvmlGpuInstancePlacement_t){ s, p->size };
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t d, unsigned int id, nvmlGpuInstancePlacement_t *out,
	unsigned int *count)
{
	return placements(__func__, d, id, out, count, 1);
}

/* The first version's count is only an answer. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t d, unsigned int id, nvmlGpuInstancePlacement_t *out,
	unsigned int *count)
{
	return placements(__func__, d, id, out, count, 0);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t d, unsigned int id, unsigned int *count)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	nvmlReturn_t r = enter_id(&c, __func__, d, id, count, SIM_ROOT | SIM_MIG, &p);
	if (r == NVML_SUCCESS)
		*count = sim_capacity(&c, p);
	return sim_leave(&c, r);
}

/* The id is a function of the span (kmigmgr_ga100.c): 0 full, 1-2 halves, 3-6 quarters, 7-14 eighths. */
static uint32_t id_of(const struct sim_model *m, uint32_t start, uint32_t size) { return m->units / size - 1 + start / size; }

/* Without a placement the highest free one is taken: so "19,19,14,9" fails and "9,19,14,19" works, as NVIDIA's guide
 * says of both. */
static nvmlReturn_t choose(const struct sim_call *c, const struct sim_profile *p, uint32_t *start)
{
	for (uint32_t s = 32; s-- > 0;)
		if (p->starts >> s & 1 && sim_fits(c, p, s) == NVML_SUCCESS) {
			*start = s;
			return NVML_SUCCESS;
		}
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static nvmlReturn_t create(const char *call, nvmlDevice_t d, unsigned int id, const nvmlGpuInstancePlacement_t *at, int placed,
	nvmlGpuInstance_t *out)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	uint32_t start = 0, slot = 0;
	nvmlReturn_t r = enter_id(&c, call, d, id, out, SIM_ROOT | SIM_MIG | SIM_WRITE, &p);
	if (r == NVML_SUCCESS && placed && (!at || at->start > 31 || !(p->starts >> at->start & 1) || at->size != p->size))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && placed) /* of a legal placement NVML says only that it is taken */
		r = sim_fits(&c, p, start = at->start);
	else if (r == NVML_SUCCESS)
		r = choose(&c, p, &start);
	/* A context on the whole GPU holds its engines (kmigmgrCreateGPUInstanceCheck_GA100). */
	if (r == NVML_SUCCESS && sim_gi_busy(c.n, c.gpu, SIM_NONE, SIM_NONE))
		r = NVML_ERROR_IN_USE;
	while (r == NVML_SUCCESS && c.wg->gi[slot].used)
		if (++slot == SIM_GIS)
			r = NVML_ERROR_INSUFFICIENT_RESOURCES;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	c.wg->gi[slot] = (struct sim_gi){ .used = 1, .id = id_of(c.m, start, p->size), .profile = id, .start = start, .size = p->size };
	sim_event(c.w, c.gpu, c.wg->gi[slot].id, SIM_NONE, nvmlEventMigConfigChange, 0);
	*out = sim_gi_handle(c.gpu, c.wg->gi[slot].id);
	return sim_leave(&c, NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *out)
{
	return create(__func__, d, id, NULL, 0, out);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t d, unsigned int id, const nvmlGpuInstancePlacement_t *at,
	nvmlGpuInstance_t *out)
{
	return create(__func__, d, id, at, 1, out);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	nvmlReturn_t r = sim_enter_gi(&c, __func__, handle, SIM_WRITE, &gi);
	for (int i = 0; r == NVML_SUCCESS && i < SIM_CIS; i++)
		if (gi->ci[i].used)
			r = NVML_ERROR_IN_USE;
	if (r == NVML_SUCCESS && sim_gi_busy(c.n, c.gpu, gi->id, SIM_NONE))
		r = NVML_ERROR_IN_USE;
	if (r == NVML_SUCCESS) {
		memset(gi, 0, sizeof *gi);
		sim_event(c.w, c.gpu, c.gi, SIM_NONE, nvmlEventMigConfigChange, 0);
	}
	return sim_leave(&c, r);
}

/* The room is not counted in: the caller has the profile's instanceCount. */
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *out, unsigned int *count)
{
	struct sim_call c;
	const struct sim_profile *p = NULL;
	nvmlReturn_t r = enter_id(&c, __func__, d, id, count, SIM_ROOT | SIM_MIG, &p);
	if (r == NVML_SUCCESS && !out)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	*count = 0;
	for (uint32_t i = 0; i < SIM_GI_IDS; i++) {
		struct sim_gi *gi = sim_gi(c.g, i);
		if (gi && gi->profile == id)
			out[(*count)++] = sim_gi_handle(c.gpu, i);
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t d, unsigned int id, nvmlGpuInstance_t *out)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, d, SIM_PARENT | SIM_ROOT | SIM_MIG);
	if (r == NVML_SUCCESS && (!out || id >= SIM_GI_IDS))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_gi(c.g, id))
		r = NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		*out = sim_gi_handle(c.gpu, id);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	nvmlReturn_t r = sim_enter_gi(&c, __func__, handle, SIM_ANY, &gi);
	if (r == NVML_SUCCESS && !info)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*info = (nvmlGpuInstanceInfo_t){ .device = sim_handle(c.gpu), .id = gi->id, .profileId = gi->profile,
			.placement = { gi->start, gi->size } };
	return sim_leave(&c, r);
}

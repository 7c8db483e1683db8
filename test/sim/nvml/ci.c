/* ci.c: compute instances: profiles, placements, capacity, life. A compute instance is what NVML calls a MIG device. */
#include "mig.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t enter_profile(struct sim_call *c, const char *call, nvmlGpuInstance_t handle, unsigned int profile, unsigned how,
	const void *out, struct sim_gi **gi, struct sim_ci_profile *k)
{
	nvmlReturn_t r = sim_enter_gi(c, call, handle, how, gi);
	if (r == NVML_SUCCESS && (!out || profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_ci_profile(k, c->m, *gi, profile))
		r = NVML_ERROR_NOT_SUPPORTED;
	return r;
}

/* The engines are those of the GPU instance: its compute instances share them. */
#define FILL(info, k, p, profile) do { \
	(info)->id = (profile); (info)->sliceCount = (k).slices; (info)->instanceCount = (k).max; \
	(info)->multiprocessorCount = (k).sm; (info)->sharedCopyEngineCount = (p)->copy; \
	(info)->sharedDecoderCount = (p)->dec; (info)->sharedEncoderCount = (p)->enc; \
	(info)->sharedJpegCount = (p)->jpeg; (info)->sharedOfaCount = (p)->ofa; \
} while (0)

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned int profile, unsigned int engines,
	nvmlComputeInstanceProfileInfo_t *info)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci_profile k;
	nvmlReturn_t r = enter_profile(&c, __func__, handle, profile, SIM_ANY, info, &gi, &k);
	if (r == NVML_SUCCESS && engines >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		FILL(info, k, sim_profile(c.m, gi->profile), profile);
	return sim_leave(&c, r);
}

static nvmlReturn_t fill_versioned(const struct sim_call *c, nvmlComputeInstanceProfileInfo_v2_t *info, const struct sim_gi *gi,
	struct sim_ci_profile k, unsigned int profile)
{
	const struct sim_profile *p = sim_profile(c->m, gi->profile);
	nvmlComputeInstanceProfileInfo_v3_t *v3 = (nvmlComputeInstanceProfileInfo_v3_t *)info;
	int third = info->version == nvmlComputeInstanceProfileInfo_v3;
	if (!third && info->version != nvmlComputeInstanceProfileInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	FILL(info, k, p, profile); /* both structures are alike up to the name */
	sim_ci_name(info->name, sizeof info->name, c->m, gi, profile);
	if (third)
		v3->capabilities = strstr(p->name, "+gfx") ? NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int profile, unsigned int engines,
	nvmlComputeInstanceProfileInfo_v2_t *info)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci_profile k;
	nvmlReturn_t r = enter_profile(&c, __func__, handle, profile, SIM_ANY, info, &gi, &k);
	if (r == NVML_SUCCESS && engines >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
		r = NVML_ERROR_INVALID_ARGUMENT;
	return sim_leave(&c, r == NVML_SUCCESS ? fill_versioned(&c, info, gi, k, profile) : r);
}

static uint32_t taken(const struct sim_gi *gi)
{
	uint32_t mask = 0;
	for (int i = 0; i < SIM_CIS; i++)
		if (gi->ci[i].used)
			mask |= ((1u << gi->ci[i].size) - 1) << gi->ci[i].start;
	return mask;
}

static int free_at(const struct sim_gi *gi, const struct sim_ci_profile *k, uint32_t start)
{
	return (taken(gi) & ((1u << k->slices) - 1) << start) == 0;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned int profile, unsigned int *count)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci_profile k;
	nvmlReturn_t r = enter_profile(&c, __func__, handle, profile, SIM_ANY, count, &gi, &k);
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	uint32_t starts = sim_ci_starts(c.m, gi, profile);
	*count = 0;
	for (uint32_t s = 0; s < 32; s++)
		*count += starts >> s & 1 && free_at(gi, &k, s);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned int profile,
	nvmlComputeInstancePlacement_t *out, unsigned int *count)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci_profile k;
	nvmlReturn_t r = enter_profile(&c, __func__, handle, profile, SIM_ANY, count, &gi, &k);
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	uint32_t starts = sim_ci_starts(c.m, gi, profile);
	unsigned int have = (unsigned)__builtin_popcount(starts), i = 0;
	if (out && *count < have)
		r = NVML_ERROR_INSUFFICIENT_SIZE;
	*count = have;
	for (uint32_t s = 0; out && r == NVML_SUCCESS && s < 32; s++)
		if (starts >> s & 1)
			out[i++] = (nvmlComputeInstancePlacement_t){ s, k.slices };
	return sim_leave(&c, r);
}

/* UUIDs of MIG devices are name-based in the driver (gpu_uuid.c): the same place gives the same UUID again, of whatever
 * profile. */
static void name_uuid(struct sim_ci *ci, const struct sim_gpu *g, const struct sim_gi *gi)
{
	uint64_t a = 0xcbf29ce484222325ull, b = 0x84222325cbf29ce4ull; /* FNV-1a, twice */
	char s[96];
	snprintf(s, sizeof s, "%s/%u/%u", g->uuid, gi->id, ci->start);
	for (const char *p = s; *p; p++) {
		a = (a ^ (unsigned char)*p) * 0x100000001b3ull;
		b = (b ^ a >> 29 ^ (unsigned char)*p) * 0x100000001b3ull;
	}
	snprintf(ci->uuid, sizeof ci->uuid, "MIG-%08x-%04x-5%03x-8%03x-%012llx", (unsigned)(b >> 32), (unsigned)(b >> 16 & 0xffff),
		(unsigned)(b & 0xfff), (unsigned)(a >> 52), (unsigned long long)(a & 0xffffffffffffull));
}

/* The lowest free id; its place in the table is any. */
static struct sim_ci *room_for(struct sim_gi *gi, uint32_t *id)
{
	struct sim_ci *room = NULL;
	for (int i = 0; i < SIM_CIS && !room; i++)
		if (!gi->ci[i].used)
			room = &gi->ci[i];
	for (*id = 0; sim_ci(gi, *id); ++*id)
		;
	return room;
}

static nvmlReturn_t create(const char *call, nvmlGpuInstance_t handle, unsigned int profile, const nvmlComputeInstancePlacement_t *at,
	int placed, nvmlComputeInstance_t *out)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci_profile k;
	uint32_t id = 0, start = 0;
	nvmlReturn_t r = enter_profile(&c, call, handle, profile, SIM_WRITE, out, &gi, &k);
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	uint32_t starts = sim_ci_starts(c.m, gi, profile);
	if (placed && (!at || at->start > 31 || !(starts >> at->start & 1) || at->size != k.slices))
		return sim_leave(&c, NVML_ERROR_INVALID_ARGUMENT);
	if (placed)
		start = at->start;
	else
		while (start < 32 && !(starts >> start & 1 && free_at(gi, &k, start)))
			start++;
	struct sim_ci *ci = room_for(gi, &id);
	if (start > 31 || !free_at(gi, &k, start) || !ci)
		return sim_leave(&c, NVML_ERROR_INSUFFICIENT_RESOURCES);
	*ci = (struct sim_ci){ .used = 1, .id = id, .profile = profile, .start = start, .size = k.slices };
	name_uuid(ci, c.g, gi);
	sim_event(c.w, c.gpu, gi->id, id, nvmlEventMigConfigChange, 0);
	*out = sim_ci_handle(c.gpu, gi->id, id);
	return sim_leave(&c, NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gi, unsigned int profile, nvmlComputeInstance_t *out)
{
	return create(__func__, gi, profile, NULL, 0, out);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gi, unsigned int profile,
	const nvmlComputeInstancePlacement_t *at, nvmlComputeInstance_t *out)
{
	return create(__func__, gi, profile, at, 1, out);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci *ci = NULL;
	nvmlReturn_t r = sim_enter_ci(&c, __func__, handle, SIM_WRITE, &gi, &ci);
	if (r == NVML_SUCCESS && sim_gi_busy(c.n, c.gpu, gi->id, ci->id))
		r = NVML_ERROR_IN_USE;
	if (r == NVML_SUCCESS) {
		memset(ci, 0, sizeof *ci);
		sim_event(c.w, c.gpu, c.gi, c.ci, nvmlEventMigConfigChange, 0);
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int profile, nvmlComputeInstance_t *out,
	unsigned int *count)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci_profile k;
	nvmlReturn_t r = enter_profile(&c, __func__, handle, profile, SIM_ANY, count, &gi, &k);
	if (r == NVML_SUCCESS && !out)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	*count = 0;
	for (uint32_t i = 0; i < SIM_CIS; i++) {
		struct sim_ci *ci = sim_ci(gi, i);
		if (ci && ci->profile == profile)
			out[(*count)++] = sim_ci_handle(c.gpu, gi->id, i);
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *out)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	nvmlReturn_t r = sim_enter_gi(&c, __func__, handle, SIM_ANY, &gi);
	if (r == NVML_SUCCESS && (!out || id >= SIM_CIS))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && !sim_ci(gi, id))
		r = NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		*out = sim_ci_handle(c.gpu, gi->id, id);
	return sim_leave(&c, r);
}

static nvmlReturn_t info(const char *call, nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *out, size_t length)
{
	struct sim_call c;
	struct sim_gi *gi = NULL;
	struct sim_ci *ci = NULL;
	nvmlReturn_t r = sim_enter_ci(&c, call, handle, SIM_ANY, &gi, &ci);
	if (r == NVML_SUCCESS && !out)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return sim_leave(&c, r);
	nvmlComputeInstanceInfo_t whole = { .device = sim_handle(c.gpu), .gpuInstance = sim_gi_handle(c.gpu, gi->id), .id = ci->id,
		.profileId = ci->profile, .placement = { ci->start, ci->size } };
	memcpy(out, &whole, length);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t ci, nvmlComputeInstanceInfo_t *out)
{
	return info(__func__, ci, out, sizeof *out);
}

/* The older structure ends before the placement. */
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t ci, nvmlComputeInstanceInfo_t *out)
{
	return info(__func__, ci, out, offsetof(nvmlComputeInstanceInfo_t, placement));
}

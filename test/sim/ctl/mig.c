/* mig.c: MIG by hand, through the simulated NVML itself, so that its rules hold here too. */
#include "ctl.h"

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdlib.h>
#include <string.h>

static nvmlDevice_t device(uint32_t *gpu, const char *which)
{
	nvmlDevice_t d;
	const struct sim_node *n = look();
	*gpu = gpu_of(n, which);
	sim_end();
	nvmlReturn_t r = nvmlInit_v2();
	if (r == NVML_SUCCESS)
		r = nvmlDeviceGetHandleByIndex_v2(*gpu, &d);
	if (r != NVML_SUCCESS)
		die(1, "GPU %u: %s", *gpu, nvmlErrorString(r));
	return d;
}

static void set_mode(nvmlDevice_t d, uint32_t gpu, unsigned on)
{
	nvmlReturn_t activation = NVML_SUCCESS, r = nvmlDeviceSetMigMode(d, on, &activation);
	if (r != NVML_SUCCESS || activation != NVML_SUCCESS)
		die(1, "MIG mode of GPU %u: %s", gpu, nvmlErrorString(r != NVML_SUCCESS ? r : activation));
}

static const struct sim_profile *profile_of(uint32_t gpu, const char *name)
{
	const struct sim_node *n = look();
	const struct sim_model *m = sim_model(n->gpu[gpu].model);
	sim_end();
	for (uint32_t i = 0; i < m->profile_count; i++)
		if (strcmp(m->profiles[i].name, name) == 0)
			return &m->profiles[i];
	die(2, "a %s has no profile %s", m->key, name);
}

static unsigned whole_slice(const struct sim_profile *p)
{
	static const unsigned by_slices[] = { 0, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
		NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE, 0, NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE,
		NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE };
	return by_slices[p->slices];
}

/* The largest compute instance: on the double-memory instance of Hopper it is rev1. */
static nvmlReturn_t fill(nvmlGpuInstance_t gi, const struct sim_profile *p)
{
	nvmlComputeInstance_t ci;
	nvmlReturn_t r = nvmlGpuInstanceCreateComputeInstance(gi, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, &ci);
	return r == NVML_SUCCESS ? r : nvmlGpuInstanceCreateComputeInstance(gi, whole_slice(p), &ci);
}

static void create(nvmlDevice_t d, uint32_t gpu, const char *what)
{
	char name[64] = "";
	nvmlGpuInstance_t gi;
	const char *at = strchr(what, '@');
	strncat(name, what, at ? (size_t)(at - what) < sizeof name ? (size_t)(at - what) : sizeof name - 1 : sizeof name - 1);
	const struct sim_profile *p = profile_of(gpu, name);
	nvmlGpuInstancePlacement_t place = { at ? (unsigned)number_of("start", at + 1, 31) : 0, p->size };
	nvmlReturn_t r = at ? nvmlDeviceCreateGpuInstanceWithPlacement(d, p->id, &place, &gi) : nvmlDeviceCreateGpuInstance(d, p->id, &gi);
	if (r == NVML_SUCCESS)
		r = fill(gi, p);
	if (r != NVML_SUCCESS)
		die(1, "create %s on GPU %u: %s", what, gpu, nvmlErrorString(r));
}

static nvmlReturn_t empty(nvmlGpuInstance_t gi)
{
	nvmlReturn_t r = NVML_SUCCESS;
	for (unsigned profile = 0; profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && r == NVML_SUCCESS; profile++) {
		nvmlComputeInstance_t ci[SIM_CIS];
		unsigned count = SIM_CIS;
		if (nvmlGpuInstanceGetComputeInstances(gi, profile, ci, &count) != NVML_SUCCESS)
			continue;
		for (unsigned i = 0; i < count && r == NVML_SUCCESS; i++)
			r = nvmlComputeInstanceDestroy(ci[i]);
	}
	return r == NVML_SUCCESS ? nvmlGpuInstanceDestroy(gi) : r;
}

static void destroy_all(nvmlDevice_t d, uint32_t gpu)
{
	const struct sim_node *n = look();
	const struct sim_model *m = sim_model(n->gpu[gpu].model);
	sim_end();
	for (uint32_t i = 0; i < m->profile_count; i++) {
		nvmlGpuInstance_t gi[SIM_GIS];
		unsigned count = SIM_GIS;
		nvmlReturn_t r = nvmlDeviceGetGpuInstances(d, m->profiles[i].id, gi, &count);
		for (unsigned k = 0; r == NVML_SUCCESS && k < count; k++)
			if ((r = empty(gi[k])) != NVML_SUCCESS)
				die(1, "destroy %s on GPU %u: %s", m->profiles[i].name, gpu, nvmlErrorString(r));
	}
}

void verb_mig(int argc, char **argv)
{
	uint32_t gpu;
	nvmlDevice_t d = device(&gpu, argv[0]);
	if (strcmp(argv[1], "on") == 0 || strcmp(argv[1], "off") == 0)
		set_mode(d, gpu, argv[1][1] == 'n');
	else if (strcmp(argv[1], "create") == 0 && argc > 2)
		for (int i = 2; i < argc; i++)
			create(d, gpu, argv[i]);
	else if (strcmp(argv[1], "destroy") == 0)
		destroy_all(d, gpu);
	else
		die(2, "mig GPU on, off, create or destroy, not %s", argv[1]);
}

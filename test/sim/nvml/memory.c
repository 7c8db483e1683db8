/* memory.c: device memory of GPUs and MIG devices.
 *
 * v1: used contains the reserved part. v2: reserved stands alone and total = reserved + used + free; nvml.h says
 * both in two places, hardware has not been asked. A MIG parent shows sums to privileged callers only (nvml.h). */
#include "sim.h"

#include <stddef.h>

/* While empty a MIG device of a 1g instance shows 9 MiB used, a 2g one 17, a 3g one 22 on an H200 and 26 on an H100, and
 * none reserved (nvidia-smi -q, driver 590.48.01: github.com/utkuozdemir/nvidia_gpu_exporter, internal/captures). */
enum { MIG_IDLE_MIB = 1, MIG_IDLE_MIB_PER_SLICE = 8 };

struct memory { uint64_t total, reserved, used; };

static nvmlReturn_t memory_of(const struct sim_call *c, struct memory *m)
{
	if (c->g->memory_unavailable)
		return NVML_ERROR_NOT_SUPPORTED;
	if (c->gi == SIM_NONE) {
		*m = (struct memory){ c->g->memory_total, c->g->memory_reserved, sim_memory_used(c->n, c->gpu, SIM_NONE) };
		return c->g->mig_current == NVML_DEVICE_MIG_ENABLE && !sim_root() ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
	}
	/* The compute instances of one GPU instance share its memory. */
	const struct sim_gi *gi = sim_gi(c->g, c->gi);
	const struct sim_profile *p = gi ? sim_profile(c->m, gi->profile) : NULL;
	if (!p)
		return NVML_ERROR_UNKNOWN;
	uint64_t idle = (uint64_t)(MIG_IDLE_MIB + p->slices * MIG_IDLE_MIB_PER_SLICE) << 20;
	*m = (struct memory){ (uint64_t)p->mib << 20, 0, idle + sim_memory_used(c->n, c->gpu, c->gi) };
	return NVML_SUCCESS;
}

static uint64_t rest(const struct memory *m)
{
	return m->total > m->reserved + m->used ? m->total - m->reserved - m->used : 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct sim_call c;
	struct memory m;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS)
		r = memory ? memory_of(&c, &m) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*memory = (nvmlMemory_t){ .total = m.total, .free = rest(&m), .used = m.total - rest(&m) };
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct sim_call c;
	struct memory m;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && !memory)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && memory->version != nvmlMemory_v2)
		r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (r == NVML_SUCCESS)
		r = memory_of(&c, &m);
	if (r == NVML_SUCCESS)
		*memory = (nvmlMemory_v2_t){ .version = nvmlMemory_v2, .total = m.total, .reserved = m.reserved, .free = rest(&m),
			.used = m.total - m.reserved - rest(&m) };
	return sim_leave(&c, r);
}

/* The BAR shows all memory, rounded up to a power of two (V100, A100, H100 listings); a T4 shows 256 MiB. */
static uint64_t bar1(const struct sim_call *c)
{
	if (c->m->arch == NVML_DEVICE_ARCH_TURING)
		return 256ull << 20;
	uint64_t size = 1ull << 20;
	while (size < c->g->memory_total)
		size <<= 1;
	return size;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && !bar1Memory)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.g->memory_unavailable)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS) {
		uint64_t total = bar1(&c), used = 1ull << 20;
		*bar1Memory = (nvmlBAR1Memory_t){ .bar1Total = total, .bar1Free = total - used, .bar1Used = used };
	}
	return sim_leave(&c, r);
}

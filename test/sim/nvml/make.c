/* make.c: a fresh GPU of a model, and a fresh node. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: UUIDs that look random and are the same in every run. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t sim_reserved_mib(const struct sim_model *m, uint32_t branch)
{
	if (branch >= 590 && m->reserved_590_mib)
		return m->reserved_590_mib;
	return branch >= 580 && m->reserved_580_mib ? m->reserved_580_mib : m->reserved_mib;
}

void sim_make_gpu(struct sim_gpu *g, const struct sim_model *m, uint32_t index, uint64_t seed)
{
	uint64_t a = mix(seed * 64 + index), b = mix(a);
	*g = (struct sim_gpu){ .minor = index, .pci_bus = 0x17 + 0x0d * index, .pci_device_id = m->pci_device_id,
		.pci_subsystem_id = m->pci_subsystem_id, .memory_total = m->memory_mib << 20, .memory_reserved = m->reserved_mib << 20,
		.compute_mode = NVML_COMPUTEMODE_DEFAULT, .ecc_current = m->ecc, .ecc_pending = m->ecc,
		.power_idle = m->power_idle_w * 1000ull, .power_limit = m->power_limit_w * 1000ull,
		.power_limit_default = m->power_limit_w * 1000ull, .power_limit_min = m->power_min_w * 1000ull,
		.power_limit_max = m->power_max_w * 1000ull, .power_set = SIM_UNSET, .temperature_set = SIM_UNSET,
		.clock_sm_set = SIM_UNSET, .clock_memory_set = SIM_UNSET, .compute_slices = m->slices };
	/* The first eight digits must differ: HTCondor's default id is made of them. */
	snprintf(g->uuid, sizeof g->uuid, "GPU-%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
		(unsigned)(a & 0xfff), (unsigned)(b >> 52), (unsigned long long)(b & 0xffffffffffffull));
	snprintf(g->name, sizeof g->name, "%s", m->name);
	snprintf(g->model, sizeof g->model, "%s", m->key);
	snprintf(g->serial, sizeof g->serial, "%013llu", (unsigned long long)(b % 10000000000000ull));
}

/* The CUDA version of each branch: NVIDIA's release notes. */
static uint32_t cuda_of(uint32_t branch)
{
	static const struct { uint32_t branch, cuda; } versions[] = { { 470, 11040 }, { 510, 11060 }, { 515, 11070 },
		{ 520, 11080 }, { 525, 12000 }, { 530, 12010 }, { 535, 12020 }, { 545, 12030 }, { 550, 12040 }, { 555, 12050 },
		{ 560, 12060 }, { 565, 12070 }, { 570, 12080 }, { 575, 12090 }, { 580, 13000 },
		{ 590, 13010 }, { 615, 13040 } };
	uint32_t cuda = 11000;
	for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++)
		if (branch >= versions[i].branch)
			cuda = versions[i].cuda;
	return cuda;
}

void sim_make_node(struct sim_node *n, const char *driver)
{
	memset(n, 0, sizeof *n);
	snprintf(n->driver, sizeof n->driver, "%s", driver);
	n->branch = (uint32_t)strtoul(driver, NULL, 10);
	n->cuda = cuda_of(n->branch);
}

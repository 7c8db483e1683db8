/* processes.c: who has a context on a GPU or MIG device. The processes are real; dead ones left the state before it
 * was opened (state.c). */
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum list { COMPUTE, GRAPHICS, MPS, EVERYTHING };

/* MPS clients of Volta and newer stand in the compute list, the MPS list or both ("M+C"): field reports differ, so
 * the node says which. On an H200 with 580.159.04 they stood in both (docs/hardware, T5). The server is an ordinary
 * compute process. */
static int in_list(const struct sim_node *n, const struct sim_process *p, enum list list)
{
	switch (list) {
	case GRAPHICS:
		return p->kind == SIM_GRAPHICS;
	case MPS:
		return p->kind == SIM_MPS_CLIENT && n->mps_lists != SIM_LIST_COMPUTE;
	case COMPUTE:
		return p->kind == SIM_COMPUTE || p->kind == SIM_MPS_SERVER ||
			(p->kind == SIM_MPS_CLIENT && n->mps_lists != SIM_LIST_MPS);
	default:
		return 1;
	}
}

static int listed(const struct sim_call *c, const struct sim_process *p, enum list list)
{
	return p->used && p->gpu == c->gpu && (c->gi == SIM_NONE || (p->gi == c->gi && p->ci == c->ci)) && in_list(c->n, p, list);
}

static unsigned collect(const struct sim_call *c, enum list list, nvmlProcessDetail_v1_t found[SIM_PROCESSES])
{
	unsigned have = 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &c->n->process[i];
		if (listed(c, p, list))
			found[have++] = (nvmlProcessDetail_v1_t){ .pid = (unsigned)p->pid,
				.usedGpuMemory = c->g->memory_unavailable ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE : p->memory,
				.gpuInstanceId = p->gi, .computeInstanceId = p->ci };
	}
	return have;
}

/* Drivers 535.43 to 535.86 wrote entries of 32 bytes where callers expect 24 (go-nvml 75, nvitop PR 79). Like there
 * the second entry lands in the wrong place; unlike there nothing is written behind the caller's room. */
static int wide_entries(const struct sim_node *n)
{
	unsigned branch = 0, minor = 0;
	return sscanf(n->driver, "%u.%u", &branch, &minor) == 2 && branch == 535 && minor >= 43 && minor <= 86;
}

static size_t entry(char *to, const nvmlProcessDetail_v1_t *p, int version, int wide)
{
	nvmlProcessInfo_v1_t v1 = { .pid = p->pid, .usedGpuMemory = p->usedGpuMemory };
	nvmlProcessInfo_v2_t v2 = { .pid = p->pid, .usedGpuMemory = p->usedGpuMemory, .gpuInstanceId = p->gpuInstanceId,
		.computeInstanceId = p->computeInstanceId };
	const void *from = version == 1 ? (void *)&v1 : wide ? (void *)p : (void *)&v2;
	size_t size = version == 1 ? sizeof v1 : wide ? sizeof *p : sizeof v2;
	memcpy(to, from, size);
	return size;
}

static nvmlReturn_t put(void *room, size_t each, unsigned have, const nvmlProcessDetail_v1_t *found, int version, int wide)
{
	char *all = calloc(have + 1, sizeof *found);
	size_t size = 0;
	if (!all)
		return NVML_ERROR_MEMORY;
	for (unsigned i = 0; i < have; i++)
		size += entry(all + size, &found[i], version, wide);
	if (have)
		memcpy(room, all, size < have * each ? size : have * each);
	free(all);
	return NVML_SUCCESS;
}

static nvmlReturn_t list(const char *call, nvmlDevice_t device, enum list which, int version, unsigned *count, void *room)
{
	struct sim_call c;
	nvmlProcessDetail_v1_t found[SIM_PROCESSES];
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_ANY);
	if (r == NVML_SUCCESS && c.gi == SIM_NONE && c.g->mig_current == NVML_DEVICE_MIG_ENABLE && !sim_root())
		r = NVML_ERROR_NO_PERMISSION; /* the aggregate of all instances (nvml.h) */
	unsigned have = r == NVML_SUCCESS ? collect(&c, which, found) : 0;
	if (r == NVML_SUCCESS)
		r = sim_list(room, count, have);
	if (r == NVML_SUCCESS)
		r = put(room, version == 1 ? sizeof(nvmlProcessInfo_v1_t) : sizeof(nvmlProcessInfo_v2_t), have, found, version,
			version == 3 && wide_entries(c.n));
	return sim_leave(&c, r);
}

#define LIST(function, which, version, type) \
	nvmlReturn_t function(nvmlDevice_t device, unsigned int *infoCount, type *infos) \
	{ \
		return list(__func__, device, which, version, infoCount, infos); \
	}

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, 1, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, 2, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, 3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, 1, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, 2, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, 3, nvmlProcessInfo_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, 1, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, 2, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, 3, nvmlProcessInfo_t)

/* Hopper and newer. */
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
	static const enum list of_mode[] = { COMPUTE, GRAPHICS, MPS, EVERYTHING };
	struct sim_call c;
	nvmlProcessDetail_v1_t found[SIM_PROCESSES];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && (!plist || plist->version != nvmlProcessDetailList_v1 || plist->mode > NVML_PROCESS_MODE_ALL))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && c.m->arch < NVML_DEVICE_ARCH_HOPPER)
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS && c.gi == SIM_NONE && c.g->mig_current == NVML_DEVICE_MIG_ENABLE && !sim_root())
		r = NVML_ERROR_NO_PERMISSION;
	unsigned have = r == NVML_SUCCESS ? collect(&c, of_mode[plist->mode], found) : 0;
	if (r == NVML_SUCCESS)
		r = sim_list(plist->procArray, &plist->numProcArrayEntries, have);
	if (r == NVML_SUCCESS && have)
		memcpy(plist->procArray, found, have * sizeof *found);
	return sim_leave(&c, r);
}

/* Any process may be asked for, with or without a GPU. Too little room cuts the name (nvml.h gives no error for it). */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[32], text[256];
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (!name || !length)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NVML_ERROR_NOT_FOUND;
	ssize_t len = read(fd, text, sizeof text - 1); /* the words end with NUL: this is the first one */
	close(fd);
	text[len < 0 ? 0 : len] = 0;
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}

/* accounting.c: what processes used over their life. Root switches it on, it is off with MIG, and the buffer is a
 * ring: new processes overwrite the one that ended first. Under MPS the work stands at the server (meter.c). */
#include "sim.h"

#include <stddef.h>

static int on(const struct sim_call *c) { return c->g->accounting && c->g->mig_current != NVML_DEVICE_MIG_ENABLE; }

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !mode)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*mode = on(&c) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return sim_leave(&c, r);
}

static void forget(struct sim_node *n, uint32_t gpu, int running_too)
{
	for (int i = 0; i < SIM_ACCOUNTS; i++)
		if (n->account[i].gpu == gpu && (running_too || !n->account[i].running))
			n->account[i] = (struct sim_account){ 0 };
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT | SIM_WRITE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS && mode != NVML_FEATURE_ENABLED && mode != NVML_FEATURE_DISABLED)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		if (mode == NVML_FEATURE_DISABLED)
			forget(c.w, c.gpu, 1); /* "Disabling accounting clears all accounting pids information" (nvml.h) */
		c.wg->accounting = mode == NVML_FEATURE_ENABLED;
		sim_settle(c.w);
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_ROOT | SIM_WRITE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS)
		forget(c.w, c.gpu, 0);
	return sim_leave(&c, r);
}

/* nvml.h says NOT_SUPPORTED while accounting is off; listings of T4, V100, A100, H100 and H200 say "Disabled" and
 * 4000. The simulated ring is smaller and tells its own size. */
nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *bufferSize)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !bufferSize)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*bufferSize = SIM_ACCOUNTS;
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
	struct sim_call c;
	unsigned have = 0, found[SIM_ACCOUNTS];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && !on(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		sim_settle(c.w); /* who came since then has no record yet */
	for (int i = 0; r == NVML_SUCCESS && i < SIM_ACCOUNTS; i++)
		if (c.n->account[i].used && c.n->account[i].gpu == c.gpu)
			found[have++] = (unsigned)c.n->account[i].pid;
	if (r == NVML_SUCCESS)
		r = sim_list(pids, count, have);
	for (unsigned i = 0; r == NVML_SUCCESS && i < have; i++)
		pids[i] = found[i];
	return sim_leave(&c, r);
}

/* "In case of pid collision stats of only the latest process" (nvml.h): the one that runs, or ended last. */
static const struct sim_account *latest(const struct sim_call *c, unsigned pid)
{
	const struct sim_account *best = NULL;
	for (int i = 0; i < SIM_ACCOUNTS; i++) {
		const struct sim_account *a = &c->n->account[i];
		if (a->used && a->gpu == c->gpu && (unsigned)a->pid == pid && (!best || a->running || (!best->running && a->ended > best->ended)))
			best = a;
	}
	return best;
}

static unsigned share(uint64_t busy, uint64_t us) { return us ? (unsigned)(busy / us / 1000) : 0; }

static nvmlReturn_t stats(const char *call, nvmlDevice_t device, unsigned pid, nvmlAccountingStats_v2_t *out)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE | SIM_WRITE);
	if (r == NVML_SUCCESS && !on(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	if (r == NVML_SUCCESS)
		sim_settle(c.w);
	const struct sim_account *a = r == NVML_SUCCESS ? latest(&c, pid) : NULL;
	if (r == NVML_SUCCESS && !a)
		r = NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS) {
		uint64_t end = a->running ? sim_now(c.n) : a->ended, us = end > a->since ? end - a->since : 0;
		unsigned samples = (unsigned)(us / 166667);
		*out = (nvmlAccountingStats_v2_t){ .pid = pid, .isRunning = a->running, .gpuUtilization = share(a->busy.kernel, us),
			.memoryUtilization = share(a->busy.memory, us), .maxMemoryUsage = a->memory_peak, .sampleCount = samples,
			.sumGpuUtil = (uint64_t)samples * share(a->busy.kernel, us) * 100,
			.sumFbUtil = (uint64_t)samples * share(a->busy.memory, us) * 100,
			.time = a->running ? 0 : us / 1000, .startTime = a->since };
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *out)
{
	nvmlAccountingStats_v2_t s;
	nvmlReturn_t r = stats(__func__, device, pid, &s);
	if (r == NVML_SUCCESS && !out)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = (nvmlAccountingStats_t){ .gpuUtilization = s.gpuUtilization, .memoryUtilization = s.memoryUtilization,
			.maxMemoryUsage = s.maxMemoryUsage, .time = s.time, .startTime = s.startTime, .isRunning = s.isRunning };
	return r;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *out)
{
	nvmlAccountingStats_v2_t s;
	nvmlReturn_t r = stats(__func__, device, out ? out->pid : 0, &s);
	if (r == NVML_SUCCESS && !out)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = s;
	return r;
}

/* gpm.c: GPU performance monitoring, Hopper and newer: what two samples of the counters say about the time between.
 * The counters are the integrals of meter.c, those of a GPU instance too. */
#include "monitor.h"

#include <stdatomic.h>
#include <stdlib.h>

struct nvmlGpmSample_st {
	atomic_uint magic;
	int taken;
	uint32_t gpu, gi, slices;
	uint64_t at;
	struct sim_busy busy;
};

enum { MAGIC = 0x67706d21, REFRESH_US = 100000 };

static int valid(nvmlGpmSample_t s) { return s && atomic_load(&s->magic) == MAGIC; }

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *gpmSample)
{
	if (!gpmSample)
		return NVML_ERROR_INVALID_ARGUMENT;
	*gpmSample = calloc(1, sizeof **gpmSample);
	if (!*gpmSample)
		return NVML_ERROR_MEMORY;
	atomic_store(&(*gpmSample)->magic, MAGIC);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t gpmSample)
{
	if (!valid(gpmSample))
		return NVML_ERROR_INVALID_ARGUMENT;
	atomic_store(&gpmSample->magic, 0);
	free(gpmSample);
	return NVML_SUCCESS;
}

static int has_gpm(const struct sim_call *c) { return c->m->arch >= NVML_DEVICE_ARCH_HOPPER; }

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *gpmSupport)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY);
	if (r == NVML_SUCCESS && !gpmSupport)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && gpmSupport->version != NVML_GPM_SUPPORT_VERSION)
		r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (r == NVML_SUCCESS)
		gpmSupport->isSupportedDevice = (unsigned)has_gpm(&c);
	return sim_leave(&c, r);
}

static nvmlReturn_t take(struct sim_call *c, uint32_t id, nvmlGpmSample_t s)
{
	if (!valid(s))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_gpm(c))
		return NVML_ERROR_NOT_SUPPORTED;
	sim_settle(c->w);
	const struct sim_gi *gi = id == SIM_NONE ? NULL : sim_gi(c->g, id);
	const struct sim_profile *p = gi ? sim_profile(c->m, gi->profile) : NULL;
	if (id != SIM_NONE && !p)
		return NVML_ERROR_INVALID_ARGUMENT;
	s->taken = 1;
	s->gpu = c->gpu;
	s->gi = id;
	s->slices = p ? p->slices : 1;
	s->at = sim_now(c->n);
	s->busy = gi ? gi->busy : c->g->busy;
	return NVML_SUCCESS;
}

/* A MIG device shows its GPU instance. */
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t gpmSample)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_ANY | SIM_WRITE);
	if (r == NVML_SUCCESS)
		r = take(&c, c.gi, gpmSample);
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpuInstanceId, nvmlGpmSample_t gpmSample)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_PARENT | SIM_WRITE | SIM_MIG);
	if (r == NVML_SUCCESS && gpuInstanceId == SIM_NONE)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		r = take(&c, gpuInstanceId, gpmSample);
	return sim_leave(&c, r);
}

static double share(uint64_t from, uint64_t to, uint64_t us) { return to > from ? (double)(to - from) / (double)us / 1000 : 0; }

/* Occupancy: as if every busy multiprocessor were full. Nothing uses tensor cores, PCIe or video engines here. */
static nvmlReturn_t metric(const struct nvmlGpmSample_st *a, const struct nvmlGpmSample_st *b, nvmlGpmMetric_t *m)
{
	uint64_t us = b->at - a->at;
	switch (m->metricId) {
	case NVML_GPM_METRIC_GRAPHICS_UTIL:
		m->value = share(a->busy.kernel, b->busy.kernel, us);
		m->metricInfo.shortName = "graphics_util";
		break;
	case NVML_GPM_METRIC_SM_UTIL:
	case NVML_GPM_METRIC_SM_OCCUPANCY:
		m->value = share(a->busy.sm, b->busy.sm, us) / b->slices;
		m->metricInfo.shortName = m->metricId == NVML_GPM_METRIC_SM_UTIL ? "sm_util" : "sm_occupancy";
		break;
	case NVML_GPM_METRIC_DRAM_BW_UTIL:
		m->value = share(a->busy.memory, b->busy.memory, us);
		m->metricInfo.shortName = "dram_bw_util";
		break;
	default:
		m->value = 0;
		if (!m->metricId || m->metricId > NVML_GPM_METRIC_NVOFA_1_UTIL)
			return m->metricId && m->metricId < NVML_GPM_METRIC_MAX ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
	}
	m->metricInfo.unit = "%";
	return NVML_SUCCESS;
}

/* Samples less than 100 ms apart hold the same refresh of the counters (nvml.h). What the driver answers then is not
 * known; NO_DATA for each metric makes a client that samples too fast show it. */
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *metricsGet)
{
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (!metricsGet || metricsGet->numMetrics > NVML_GPM_METRIC_MAX || !valid(metricsGet->sample1) || !valid(metricsGet->sample2))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (metricsGet->version != NVML_GPM_METRICS_GET_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	const struct nvmlGpmSample_st *a = metricsGet->sample1, *b = metricsGet->sample2;
	if (!a->taken || !b->taken || a->gpu != b->gpu || a->gi != b->gi)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < metricsGet->numMetrics; i++) {
		nvmlGpmMetric_t *m = &metricsGet->metrics[i];
		m->nvmlReturn = b->at < a->at + REFRESH_US ? NVML_ERROR_NO_DATA : metric(a, b, m);
	}
	return NVML_SUCCESS;
}

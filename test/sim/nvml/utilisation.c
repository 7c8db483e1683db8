/* utilisation.c: how busy a GPU and its processes are, as NVML counts it: the share of time in which any kernel ran.
 * A kernel on one multiprocessor makes 100 %. None of it works with MIG (nvml.h). */
#include "monitor.h"

#include <string.h>

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS && !utilization)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*utilization = (nvmlUtilization_t){ .gpu = sim_kernel_load(c.n, c.gpu), .memory = sim_memory_load(c.n, c.gpu) };
	return sim_leave(&c, r);
}

/* Sampling: every 1/6 s ("between 1 second and 1/6 second depending on the product", nvidia-smi(1)), 100 kept. */
enum { PERIOD_US = 166667, KEPT = 100, KEEP_US = PERIOD_US * KEPT };

/* Nobody encodes or decodes here: compute jobs only. */
static nvmlReturn_t idle_engine(const char *call, nvmlDevice_t device, unsigned int *utilization, unsigned int *period)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, call, device, SIM_WHOLE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS && (!utilization || !period))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS) {
		*utilization = 0;
		*period = PERIOD_US;
	}
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(__func__, device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(__func__, device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(__func__, device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
	return idle_engine(__func__, device, utilization, samplingPeriodUs);
}

/* The load that held at a time: the newest change before it. Nothing known of that time: idle. */
static struct sim_sample load_at(const struct sim_gpu *g, uint64_t at)
{
	struct sim_sample found = { 0 };
	for (int i = 0; i < SIM_SAMPLES; i++)
		if (g->samples[i].at && g->samples[i].at <= at && g->samples[i].at >= found.at)
			found = g->samples[i];
	return found;
}

static unsigned value_of(const struct sim_call *c, nvmlSamplingType_t type, const struct sim_sample *s)
{
	const struct sim_gpu *g = c->g;
	switch (type) {
	case NVML_TOTAL_POWER_SAMPLES:
		return (unsigned)(g->power_idle + (g->power_limit - g->power_idle) * s->gpu_load / 100);
	case NVML_GPU_UTILIZATION_SAMPLES:
		return s->kernel_load;
	case NVML_MEMORY_UTILIZATION_SAMPLES:
		return s->memory_load;
	case NVML_PROCESSOR_CLK_SAMPLES:
		return sim_clock(c, NVML_CLOCK_SM, s->kernel_load);
	case NVML_MEMORY_CLK_SAMPLES:
		return sim_clock(c, NVML_CLOCK_MEM, s->kernel_load);
	default:
		return 0;
	}
}

static int of_engines(nvmlSamplingType_t type)
{
	return type != NVML_TOTAL_POWER_SAMPLES && type != NVML_PROCESSOR_CLK_SAMPLES && type != NVML_MEMORY_CLK_SAMPLES &&
		type != NVML_MODULE_POWER_SAMPLES;
}

/* The buffer of an idle GPU runs dry, and clients see NOT_FOUND, not zeros (gpu-metrics-agent PR 37). */
static unsigned fill(const struct sim_call *c, nvmlSamplingType_t type, uint64_t seen, unsigned room, nvmlSample_t *samples)
{
	uint64_t now = sim_now(c->n) / PERIOD_US * PERIOD_US, first = now > KEEP_US ? now - KEEP_US + PERIOD_US : PERIOD_US;
	unsigned have = 0, busy = 0;
	for (uint64_t at = first; at <= now && have < room; at += PERIOD_US) {
		struct sim_sample s = load_at(c->g, at);
		busy |= s.kernel_load;
		if (at > seen)
			samples[have++] = (nvmlSample_t){ .timeStamp = at, .sampleValue.uiVal = value_of(c, type, &s) };
	}
	return busy || !of_engines(type) ? have : 0;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long lastSeenTimeStamp,
	nvmlValueType_t *sampleValType, unsigned int *sampleCount, nvmlSample_t *samples)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | (of_engines(type) ? SIM_NOT_MIG : 0));
	if (r == NVML_SUCCESS && (!sampleValType || !sampleCount || (samples && !*sampleCount) || (unsigned)type >= NVML_SAMPLINGTYPE_COUNT))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && type == NVML_MODULE_POWER_SAMPLES)
		r = NVML_ERROR_NOT_SUPPORTED; /* Grace Hopper modules */
	if (r == NVML_SUCCESS) {
		*sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
		*sampleCount = samples ? fill(&c, type, lastSeenTimeStamp, *sampleCount, samples) : KEPT;
		if (!*sampleCount)
			r = NVML_ERROR_NOT_FOUND;
	}
	return sim_leave(&c, r);
}

static unsigned capped(unsigned sum) { return sum > 100 ? 100 : sum; }

/* The work of MPS clients is booked on their server; the clients have no sample (pmon: "-"; DRA driver PR 1143). */
static int sample_of(const struct sim_node *n, const struct sim_process *p, nvmlProcessUtilizationInfo_v1_t *s)
{
	unsigned sm = 0, memory = 0;
	int served = 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *q = &n->process[i];
		if (!q->used || q->gpu != p->gpu)
			continue;
		served |= p->kind == SIM_MPS_CLIENT && q->kind == SIM_MPS_SERVER && q->pid == p->server;
		if (q != p && !(p->kind == SIM_MPS_SERVER && q->kind == SIM_MPS_CLIENT && q->server == p->pid))
			continue;
		sm += sim_process_kernel_load(q);
		memory += q->memory_load;
	}
	/* Samples of different processes do not come at the same moment (go-nvml 51). */
	uint64_t now = sim_now(n), phase = (uint64_t)p->pid % 6 * PERIOD_US, period = 6 * PERIOD_US;
	uint64_t at = now > phase ? (now - phase) / period * period + phase : 0;
	*s = (nvmlProcessUtilizationInfo_v1_t){ .timeStamp = at, .pid = (unsigned)p->pid, .smUtil = capped(sm), .memUtil = capped(memory) };
	return sm > 0 && !served && at > p->since;
}

/* One sample for each process that worked; those of dead ones stay in the buffer for a while (go-nvml 51). */
static unsigned collect(const struct sim_call *c, uint64_t seen, nvmlProcessUtilizationInfo_v1_t *out)
{
	unsigned have = 0;
	uint64_t now = sim_now(c->n);
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &c->n->process[i];
		if (p->used && p->gpu == c->gpu && sample_of(c->n, p, &out[have]) && out[have].timeStamp > seen)
			have++;
	}
	for (int i = 0; i < SIM_GONE; i++) {
		const struct sim_gone *g = &c->n->gone[i];
		if (g->at && g->gpu == c->gpu && g->at > seen && g->at + KEEP_US > now)
			out[have++] = (nvmlProcessUtilizationInfo_v1_t){ .timeStamp = g->at, .pid = (unsigned)g->pid,
				.smUtil = g->kernel_load, .memUtil = g->memory_load };
	}
	if (c->n->stray_samples && have) { /* seen in the field: clients skip pid 0 and values above 100 */
		out[have++] = (nvmlProcessUtilizationInfo_v1_t){ .timeStamp = now, .pid = 0, .smUtil = 7 };
		out[have++] = (nvmlProcessUtilizationInfo_v1_t){ .timeStamp = now, .pid = 1, .smUtil = SIM_NONE, .memUtil = SIM_NONE };
	}
	return have;
}

enum { MOST = SIM_PROCESSES + SIM_GONE + 2 };

unsigned sim_process_samples(const struct sim_call *c, uint64_t seen, nvmlProcessUtilizationInfo_v1_t *out, unsigned room)
{
	nvmlProcessUtilizationInfo_v1_t found[MOST];
	unsigned have = collect(c, seen, found);
	have = have < room ? have : room;
	memcpy(out, found, have * sizeof *found);
	return have;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
	unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)
{
	struct sim_call c;
	nvmlProcessUtilizationInfo_v1_t found[MOST];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS && !processSamplesCount)
		r = NVML_ERROR_INVALID_ARGUMENT;
	unsigned have = r == NVML_SUCCESS ? collect(&c, lastSeenTimeStamp, found) : 0;
	if (r == NVML_SUCCESS)
		r = have ? sim_list(utilization, processSamplesCount, have) : NVML_ERROR_NOT_FOUND;
	for (unsigned i = 0; r == NVML_SUCCESS && i < have; i++)
		utilization[i] = (nvmlProcessUtilizationSample_t){ .pid = found[i].pid, .timeStamp = found[i].timeStamp,
			.smUtil = found[i].smUtil, .memUtil = found[i].memUtil };
	return sim_leave(&c, r);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
	struct sim_call c;
	nvmlProcessUtilizationInfo_v1_t found[MOST];
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE | SIM_NOT_MIG);
	if (r == NVML_SUCCESS && !info)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && info->version != nvmlProcessesUtilizationInfo_v1)
		r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	unsigned have = r == NVML_SUCCESS ? collect(&c, info->lastSeenTimeStamp, found) : 0;
	if (r == NVML_SUCCESS)
		r = have ? sim_list(info->procUtilArray, &info->processSamplesCount, have) : NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		memcpy(info->procUtilArray, found, have * sizeof *found);
	return sim_leave(&c, r);
}

/* gpm.c: checks of GPU performance monitoring. */
#include "check.h"

static nvmlGpmSample_t first, second;

static void begin(void)
{
	OK(nvmlGpmSampleAlloc(&first));
	OK(nvmlGpmSampleAlloc(&second));
}

static nvmlGpmMetric_t metric(unsigned id)
{
	static nvmlGpmMetricsGet_t get;
	get = (nvmlGpmMetricsGet_t){ .version = NVML_GPM_METRICS_GET_VERSION, .numMetrics = 1, .sample1 = first, .sample2 = second };
	get.metrics[0].metricId = id;
	OK(nvmlGpmMetricsGet(&get));
	return get.metrics[0];
}

static int near(double want, unsigned id)
{
	nvmlGpmMetric_t m = metric(id);
	return m.nvmlReturn == NVML_SUCCESS && m.value > want - 1 && m.value < want + 1;
}

static void support(void)
{
	node("550.163.01", "H100-80 A100-40");
	begin();
	nvmlGpmSupport_t s = { .version = NVML_GPM_SUPPORT_VERSION };
	OK(nvmlGpmQueryDeviceSupport(device(0), &s));
	EQUAL(1, s.isSupportedDevice);
	OK(nvmlGpmQueryDeviceSupport(device(1), &s));
	EQUAL(0, s.isSupportedDevice);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlGpmSampleGet(device(1), first));
	OK(nvmlGpmSampleFree(first));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlGpmSampleGet(device(0), NULL));
}

static void between(void)
{
	node("550.163.01", "H100-80");
	begin();
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 20);
	struct sim_node *n = edit();
	of(n, p)->percentage = 40;
	of(n, p)->memory_load = 15;
	done(n);
	OK(nvmlGpmSampleGet(device(0), first));
	OK(nvmlGpmSampleGet(device(0), second));
	EQUAL(NVML_ERROR_NO_DATA, metric(NVML_GPM_METRIC_SM_UTIL).nvmlReturn); /* too soon */
	later(10000000);
	end(p);
	OK(nvmlGpmSampleGet(device(0), second));
	CHECK(near(20, NVML_GPM_METRIC_SM_UTIL));
	CHECK(near(50, NVML_GPM_METRIC_GRAPHICS_UTIL)); /* 20 of at most 40 */
	CHECK(near(15, NVML_GPM_METRIC_DRAM_BW_UTIL));
	later(10000000);
	OK(nvmlGpmSampleGet(device(0), second));
	CHECK(near(10, NVML_GPM_METRIC_SM_UTIL)); /* the mean over both */
	EQUAL(NVML_ERROR_INVALID_ARGUMENT, metric(NVML_GPM_METRIC_MAX).nvmlReturn);
}

static void by_instance(void)
{
	need_root();
	node("550.163.01", "H100-80");
	begin();
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlGpmMigSampleGet(device(0), 1, first)); /* MIG is off */
	mig(0);
	unsigned big, small;
	nvmlDevice_t of_big = instance(0, 9, 4, &big), of_small = instance(0, 19, 0, &small);
	CHECK(of_big && of_small);
	worker(SIM_COMPUTE, 0, big, 0, 10, 70);
	OK(nvmlGpmMigSampleGet(device(0), big, first));
	later(10000000);
	OK(nvmlGpmMigSampleGet(device(0), big, second));
	CHECK(near(70, NVML_GPM_METRIC_SM_UTIL)); /* of its own multiprocessors */
	OK(nvmlGpmMigSampleGet(device(0), small, second));
	static nvmlGpmMetricsGet_t get;
	get = (nvmlGpmMetricsGet_t){ .version = NVML_GPM_METRICS_GET_VERSION, .numMetrics = 1, .sample1 = first, .sample2 = second };
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlGpmMetricsGet(&get)); /* samples of two instances */
	OK(nvmlGpmMigSampleGet(device(0), small, first));
	later(10000000);
	OK(nvmlGpmMigSampleGet(device(0), small, second));
	CHECK(near(0, NVML_GPM_METRIC_SM_UTIL));
	OK(nvmlGpmSampleGet(device(0), first));
	later(10000000);
	OK(nvmlGpmSampleGet(device(0), second));
	CHECK(near(30, NVML_GPM_METRIC_SM_UTIL)); /* 70 % of three of seven slices */
	destroy(of_small);
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlGpmMigSampleGet(device(0), small, first));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlGpmSampleGet(of_small, first));
}

const struct check gpm_checks[] = {
	{ "gpm-support", "nvml.h nvmlGpmQueryDeviceSupport: Hopper and newer", support },
	{ "gpm-between-samples", "nvml.h nvmlGpmMetricsGet: two samples, more than 100 ms apart", between },
	{ "gpm-instance", "nvml.h nvmlGpmMigSampleGet: parent and GPU instance id", by_instance },
	{ 0 },
};

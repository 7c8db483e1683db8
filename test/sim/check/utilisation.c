/* utilisation.c: checks of utilisation, its samples, and that of processes. */
#include "check.h"

static void any_kernel(void)
{
	node("550.163.01", "A100-40");
	nvmlUtilization_t u;
	OK(nvmlDeviceGetUtilizationRates(device(0), &u));
	EQUAL(0, u.gpu);
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 40);
	OK(nvmlDeviceGetUtilizationRates(device(0), &u));
	EQUAL(40, u.gpu);
	/* One per cent of the multiprocessors, all the time. */
	struct sim_node *n = edit();
	of(n, p)->load = of(n, p)->percentage = 1;
	done(n);
	OK(nvmlDeviceGetUtilizationRates(device(0), &u));
	EQUAL(100, u.gpu);
	end(p);
	OK(nvmlDeviceGetUtilizationRates(device(0), &u));
	EQUAL(0, u.gpu);
}

static void not_mig(void)
{
	need_root();
	node("550.163.01", "H100-80");
	mig(0);
	unsigned gi, count = 0, ms;
	nvmlDevice_t inside = instance(0, 19, 0, &gi);
	nvmlUtilization_t u;
	nvmlValueType_t type;
	worker(SIM_COMPUTE, 0, gi, 0, 10, 100);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetUtilizationRates(device(0), &u));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetUtilizationRates(inside, &u));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetProcessUtilization(device(0), NULL, &count, 0));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetSamples(device(0), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, NULL));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetEncoderUtilization(device(0), &count, &ms));
	OK(nvmlDeviceGetSamples(device(0), NVML_TOTAL_POWER_SAMPLES, 0, &type, &count, NULL));
}

static void samples(void)
{
	node("550.163.01", "A100-40");
	nvmlValueType_t type;
	nvmlSample_t s[200];
	unsigned count = 0;
	OK(nvmlDeviceGetSamples(device(0), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, NULL));
	CHECK(count > 0 && count <= 200);
	GIVES(NVML_ERROR_NOT_FOUND, nvmlDeviceGetSamples(device(0), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, s));
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 60);
	later(4000000);
	end(p);
	later(2000000);
	count = 200;
	OK(nvmlDeviceGetSamples(device(0), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, s));
	EQUAL(NVML_VALUE_TYPE_UNSIGNED_INT, type);
	unsigned busy = 0, after = 0;
	for (unsigned i = 0; i < count; i++) {
		CHECK(i == 0 || s[i].timeStamp > s[i - 1].timeStamp);
		CHECK(s[i].sampleValue.uiVal == 0 || s[i].sampleValue.uiVal == 60);
		busy += s[i].sampleValue.uiVal > 0;
		after += s[i].sampleValue.uiVal == 0 && busy;
	}
	CHECK(busy >= 20 && after >= 10); /* 4 s and 2 s of six samples each */
	unsigned long long seen = s[count - 3].timeStamp;
	count = 200;
	OK(nvmlDeviceGetSamples(device(0), NVML_GPU_UTILIZATION_SAMPLES, seen, &type, &count, s));
	CHECK(count >= 2 && count <= 6);
	CHECK(s[0].timeStamp > seen);
	count = 200;
	OK(nvmlDeviceGetSamples(device(0), NVML_TOTAL_POWER_SAMPLES, 0, &type, &count, s));
	CHECK(s[count - 1].sampleValue.uiVal < s[count - 20].sampleValue.uiVal);
}

static unsigned read_samples(nvmlProcessUtilizationSample_t *s, unsigned long long seen)
{
	unsigned count = 0;
	nvmlReturn_t r = nvmlDeviceGetProcessUtilization(device(0), NULL, &count, seen);
	if (r == NVML_ERROR_NOT_FOUND)
		return 0;
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, r);
	OK(nvmlDeviceGetProcessUtilization(device(0), s, &count, seen));
	return count;
}

static void by_process(void)
{
	node("550.163.01", "A100-40");
	nvmlProcessUtilizationSample_t s[SIM_PROCESSES];
	EQUAL(0, read_samples(s, 0));
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 30);
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0); /* idle: no sample */
	struct sim_node *n = edit();
	uint64_t since = of(n, p)->since;
	done(n);
	CHECK(read_samples(s, 0) == 0 || s[0].timeStamp > since); /* nothing from before it was there */
	later(3000000);
	EQUAL(1, read_samples(s, 0));
	CHECK((int)s[0].pid == p && s[0].smUtil == 30);
	unsigned long long seen = s[0].timeStamp;
	EQUAL(0, read_samples(s, seen)); /* nothing newer */
	later(3000000);
	EQUAL(1, read_samples(s, seen));
	/* The dead stay in the buffer, and leave it. */
	end(p);
	EQUAL(1, read_samples(s, 0));
	EQUAL(p, s[0].pid);
	later(60000000);
	EQUAL(0, read_samples(s, 0));
}

static void by_server(void)
{
	node("550.163.01", "A100-40");
	nvmlProcessUtilizationSample_t s[SIM_PROCESSES];
	pid_t server = worker(SIM_MPS_SERVER, 0, SIM_NONE, SIM_NONE, 28, 0);
	pid_t a = worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 10, 30), b = worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 10, 20);
	struct sim_node *n = edit();
	of(n, a)->server = of(n, b)->server = server;
	done(n);
	later(3000000);
	EQUAL(1, read_samples(s, 0));
	CHECK((int)s[0].pid == server && s[0].smUtil == 50);
}

static void strays(void)
{
	node("550.163.01", "A100-40");
	nvmlProcessUtilizationSample_t s[SIM_PROCESSES];
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 30);
	struct sim_node *n = edit();
	n->stray_samples = 1;
	done(n);
	later(3000000);
	EQUAL(3, read_samples(s, 0));
	EQUAL(0, s[1].pid);
	CHECK(s[2].smUtil > 100);
}

const struct check utilisation_checks[] = {
	{ "utilisation-any-kernel", "nvml.h nvmlUtilization_t; nvidia-docker 807: 100 % at a cap of 1 %", any_kernel },
	{ "utilisation-not-mig", "nvml.h nvmlDeviceGetUtilizationRates, GetSamples, GetProcessUtilization: not with MIG", not_mig },
	{ "utilisation-samples", "nvml.h nvmlDeviceGetSamples; nvidia-smi(1): 1/6 s; gpu-metrics-agent PR 37: NOT_FOUND when idle", samples },
	{ "utilisation-processes", "nvml.h nvmlDeviceGetProcessUtilization; go-nvml 51: old samples stay in the buffer", by_process },
	{ "utilisation-mps", "MPS documentation, DRA driver PR 1143: utilisation is booked on the server", by_server },
	{ "utilisation-strays", "KGF readme: PID 0 and values above 100 are seen", strays },
	{ 0 },
};

/* accounting.c: checks of accounting. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void enable(void) { OK(nvmlDeviceSetAccountingMode(device(0), NVML_FEATURE_ENABLED)); }

static void by_nobody(void)
{
	unsigned count = 0;
	GIVES(NVML_ERROR_NO_PERMISSION, nvmlDeviceSetAccountingMode(device(0), NVML_FEATURE_ENABLED));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetAccountingPids(device(0), &count, NULL)); /* it is off */
}

static void root(void)
{
	need_root();
	node("550.163.01", "A100-40");
	nvmlEnableState_t mode;
	OK(nvmlDeviceGetAccountingMode(device(0), &mode));
	EQUAL(NVML_FEATURE_DISABLED, mode);
	unprivileged(by_nobody);
	enable();
	OK(nvmlDeviceGetAccountingMode(device(0), &mode));
	EQUAL(NVML_FEATURE_ENABLED, mode);
}

static void in_mig(void)
{
	need_root();
	node("550.163.01", "H100-80");
	enable();
	mig(0);
	nvmlEnableState_t mode;
	OK(nvmlDeviceGetAccountingMode(device(0), &mode));
	EQUAL(NVML_FEATURE_DISABLED, mode);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceSetAccountingMode(device(0), NVML_FEATURE_ENABLED));
}

static void life(void)
{
	need_root();
	node("550.163.01", "A100-40");
	enable();
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 300, 50);
	later(10000000);
	struct sim_node *n = edit();
	of(n, p)->memory = 100 << 20;
	of(n, p)->load = 0;
	done(n);
	later(10000000);
	nvmlAccountingStats_t s;
	OK(nvmlDeviceGetAccountingStats(device(0), (unsigned)p, &s));
	EQUAL(1, s.isRunning);
	EQUAL(0, s.time); /* 0 until it ends */
	EQUAL(300ull << 20, s.maxMemoryUsage);
	CHECK(s.gpuUtilization >= 24 && s.gpuUtilization <= 25);
	end(p);
	OK(nvmlDeviceGetAccountingStats(device(0), (unsigned)p, &s));
	EQUAL(0, s.isRunning);
	CHECK(s.time >= 20000 && s.time < 25000);
	EQUAL(300ull << 20, s.maxMemoryUsage);
	GIVES(NVML_ERROR_NOT_FOUND, nvmlDeviceGetAccountingStats(device(0), 1, &s));
	nvmlAccountingStats_v2_t two = { .pid = (unsigned)p };
	OK(nvmlDeviceGetAccountingStats_v2(device(0), &two));
	CHECK(two.sampleCount >= 100 && two.sumGpuUtil / two.sampleCount / 100 == two.gpuUtilization);
	OK(nvmlDeviceClearAccountingPids(device(0)));
	GIVES(NVML_ERROR_NOT_FOUND, nvmlDeviceGetAccountingStats(device(0), (unsigned)p, &s));
}

static void cleared(void)
{
	need_root();
	node("550.163.01", "A100-40");
	unsigned count = 0;
	enable();
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0);
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetAccountingPids(device(0), &count, NULL));
	EQUAL(1, count);
	OK(nvmlDeviceClearAccountingPids(device(0))); /* the ones that ended only */
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetAccountingPids(device(0), &count, NULL));
	EQUAL(1, count);
	later(1000); /* its record is in the buffer now */
	OK(nvmlDeviceSetAccountingMode(device(0), NVML_FEATURE_DISABLED));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetAccountingPids(device(0), &count, NULL));
	end(p); /* unseen */
	enable();
	OK(nvmlDeviceGetAccountingPids(device(0), &count, NULL));
	EQUAL(0, count);
}

static void ring(void)
{
	need_root();
	node("550.163.01", "A100-40");
	enable();
	unsigned size, count = SIM_ACCOUNTS, pids[SIM_ACCOUNTS];
	OK(nvmlDeviceGetAccountingBufferSize(device(0), &size));
	pid_t lives = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0), first = 0, last = 0;
	for (unsigned i = 0; i < size + 5; i++) {
		last = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0);
		first = i ? first : last;
		end(last);
		later(1000); /* the ends differ */
	}
	OK(nvmlDeviceGetAccountingPids(device(0), &count, pids));
	EQUAL(size, count);
	nvmlAccountingStats_t s;
	GIVES(NVML_ERROR_NOT_FOUND, nvmlDeviceGetAccountingStats(device(0), (unsigned)first, &s));
	OK(nvmlDeviceGetAccountingStats(device(0), (unsigned)last, &s));
	OK(nvmlDeviceGetAccountingStats(device(0), (unsigned)lives, &s)); /* never overwritten while it runs */
	EQUAL(1, s.isRunning);
}

static void mps(void)
{
	need_root();
	node("550.163.01", "A100-40");
	enable();
	pid_t server = worker(SIM_MPS_SERVER, 0, SIM_NONE, SIM_NONE, 28, 0), p = worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 10, 0);
	struct sim_node *n = edit();
	of(n, p)->server = server;
	of(n, p)->load = 80;
	done(n);
	later(10000000);
	nvmlAccountingStats_t s;
	OK(nvmlDeviceGetAccountingStats(device(0), (unsigned)server, &s));
	CHECK(s.gpuUtilization >= 78 && s.gpuUtilization <= 80);
	OK(nvmlDeviceGetAccountingStats(device(0), (unsigned)p, &s));
	EQUAL(0, s.gpuUtilization);
	EQUAL(10ull << 20, s.maxMemoryUsage);
}

const struct check accounting_checks[] = {
	{ "accounting-root", "nvml.h nvmlDeviceSetAccountingMode: root; off by default", root },
	{ "accounting-mig", "nvml.h: on MIG-enabled GPUs DISABLED, and changing it is not supported", in_mig },
	{ "accounting-life", "nvml.h nvmlAccountingStats_t: highest memory also after the end, time 0 while it runs", life },
	{ "accounting-cleared", "nvml.h: clear takes those that ended, disabling all", cleared },
	{ "accounting-ring", "nvml.h: a circular buffer, newly created processes overwrite old ones", ring },
	{ "accounting-mps", "DCGM 73: work under MPS at the server; inferred", mps },
	{ 0 },
};

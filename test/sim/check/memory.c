/* memory.c: checks of device memory. */
#include "check.h"

static void sums(void)
{
	node("550.163.01", "A100-40");
	nvmlMemory_t a;
	nvmlMemory_v2_t b = { .version = nvmlMemory_v2 };
	OK(nvmlDeviceGetMemoryInfo(device(0), &a));
	uint64_t reserved = a.used;
	CHECK(reserved > 0);
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 1000, 0), q = worker(SIM_MPS_SERVER, 0, SIM_NONE, SIM_NONE, 28, 0);
	OK(nvmlDeviceGetMemoryInfo(device(0), &a));
	EQUAL(reserved + (1028ull << 20), a.used);
	EQUAL(a.total, a.used + a.free);
	OK(nvmlDeviceGetMemoryInfo_v2(device(0), &b));
	EQUAL(a.total, b.total);
	EQUAL(reserved, b.reserved);
	EQUAL(1028ull << 20, b.used);
	EQUAL(b.total, b.reserved + b.used + b.free);
	b.version = 1;
	GIVES(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDeviceGetMemoryInfo_v2(device(0), &b));
	end(p);
	end(q);
	OK(nvmlDeviceGetMemoryInfo(device(0), &a));
	EQUAL(reserved, a.used);
}

static nvmlDevice_t parent, inside;

static void by_nobody(void)
{
	nvmlMemory_t m;
	GIVES(NVML_ERROR_NO_PERMISSION, nvmlDeviceGetMemoryInfo(parent, &m));
	OK(nvmlDeviceGetMemoryInfo(inside, &m));
}

static void in_mig(void)
{
	need_root();
	node("550.163.01", "H100-80");
	mig(0);
	unsigned gi, other;
	nvmlMemory_t m;
	inside = instance(0, 14, 0, &gi);
	nvmlDevice_t beside = instance(0, 14, 2, &other);
	parent = device(0);
	OK(nvmlDeviceGetMemoryInfo(inside, &m));
	EQUAL(20096ull << 20, m.total); /* 2g.20gb, listing of a real H100 */
	uint64_t before = m.used;
	worker(SIM_COMPUTE, 0, gi, 0, 500, 0);
	OK(nvmlDeviceGetMemoryInfo(inside, &m));
	EQUAL(before + (500ull << 20), m.used);
	OK(nvmlDeviceGetMemoryInfo(beside, &m));
	EQUAL(before, m.used);
	OK(nvmlDeviceGetMemoryInfo(parent, &m)); /* root sees the sum */
	CHECK(m.used >= 500ull << 20);
	unprivileged(by_nobody);
}

static void unavailable(void)
{
	node("550.163.01", "A100-40");
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 1000, 0);
	struct sim_node *n = edit();
	n->gpu[0].memory_unavailable = 1;
	done(n);
	nvmlMemory_t m;
	nvmlProcessInfo_t info[4];
	unsigned count = 4;
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetMemoryInfo(device(0), &m));
	OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, info));
	EQUAL(1, count);
	EQUAL(p, info[0].pid);
	EQUAL(~0ull, info[0].usedGpuMemory);
}

const struct check memory_checks[] = {
	{ "memory-sums", "nvml.h nvmlMemory_t: used contains the reserved part; v2 total = reserved + used + free", sums },
	{ "memory-mig", "nvml.h nvmlDeviceGetMemoryInfo: per instance by MIG handle, aggregate with privilege only", in_mig },
	{ "memory-unavailable", "nvml.h NVML_VALUE_NOT_AVAILABLE; GB10 answers NOT_SUPPORTED", unavailable },
	{ 0 },
};

/* process.c: checks of the process lists. */
#include "check.h"

#include <string.h>

static unsigned count_of(nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *), nvmlDevice_t d)
{
	nvmlProcessInfo_t info[SIM_PROCESSES];
	unsigned count = SIM_PROCESSES;
	OK(list(d, &count, info));
	return count;
}

static unsigned computing(nvmlDevice_t d) { return count_of(nvmlDeviceGetComputeRunningProcesses_v3, d); }
static unsigned by_mps(nvmlDevice_t d) { return count_of(nvmlDeviceGetMPSComputeRunningProcesses_v3, d); }

static void sizes(void)
{
	node("550.163.01", "A100-40");
	unsigned count = 0;
	nvmlProcessInfo_t info[2];
	OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, NULL)); /* none: SUCCESS */
	EQUAL(0, count);
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0);
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 20, 0);
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, NULL));
	EQUAL(2, count);
	count = 1;
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, info));
	EQUAL(2, count);
	OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, info));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetComputeRunningProcesses_v3(device(0), NULL, info));
}

static void versions(void)
{
	node("550.163.01", "A100-40");
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0), q = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 20, 0);
	nvmlProcessInfo_v1_t v1[2];
	nvmlProcessInfo_v2_t v2[2];
	unsigned count = 2;
	OK(nvmlDeviceGetComputeRunningProcesses(device(0), &count, v1));
	CHECK((int)v1[0].pid == p && (int)v1[1].pid == q && v1[1].usedGpuMemory == 20ull << 20);
	OK(nvmlDeviceGetComputeRunningProcesses_v2(device(0), &count, v2));
	CHECK((int)v2[1].pid == q && v2[1].usedGpuMemory == 20ull << 20);
	EQUAL(0xFFFFFFFFu, v2[1].gpuInstanceId);
	EQUAL(0xFFFFFFFFu, v2[1].computeInstanceId);
	EQUAL(0, count_of(nvmlDeviceGetGraphicsRunningProcesses_v3, device(0)));
}

static void wide(void)
{
	node("535.54.03", "A100-40");
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0), q = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 20, 0);
	nvmlProcessInfo_t info[2];
	nvmlProcessInfo_v2_t right[2];
	unsigned count = 2;
	OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, info));
	EQUAL(p, info[0].pid);      /* the first one looks right */
	CHECK((int)info[1].pid != q); /* the second is garbage */
	OK(nvmlDeviceGetComputeRunningProcesses_v2(device(0), &count, right));
	EQUAL(q, right[1].pid);
}

static void dead(void)
{
	node("550.163.01", "A100-40");
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 50), q = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0);
	EQUAL(2, computing(device(0)));
	end(p);
	EQUAL(1, computing(device(0)));
	/* A number that another process got: its start time differs. */
	struct sim_node *n = edit();
	of(n, q)->start--;
	done(n);
	EQUAL(0, computing(device(0)));
}

static void mps(void)
{
	node("550.163.01", "A100-40");
	pid_t s = worker(SIM_MPS_SERVER, 0, SIM_NONE, SIM_NONE, 28, 0), p = worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 500, 0);
	EQUAL(2, computing(device(0)));
	EQUAL(1, by_mps(device(0)));
	nvmlProcessInfo_t info[1];
	unsigned count = 1;
	OK(nvmlDeviceGetMPSComputeRunningProcesses_v3(device(0), &count, info));
	EQUAL(p, info[0].pid);
	EQUAL(500ull << 20, info[0].usedGpuMemory);
	static const struct { enum sim_mps_lists lists; unsigned compute, mps; } seen[] = { { SIM_LIST_MPS, 1, 1 }, { SIM_LIST_COMPUTE, 2, 0 } };
	for (int i = 0; i < 2; i++) {
		struct sim_node *n = edit();
		n->mps_lists = seen[i].lists;
		done(n);
		EQUAL(seen[i].compute, computing(device(0)));
		EQUAL(seen[i].mps, by_mps(device(0)));
	}
	end(s);
}

static nvmlDevice_t parent, inside;

static void by_nobody(void)
{
	unsigned count = 0;
	GIVES(NVML_ERROR_NO_PERMISSION, nvmlDeviceGetComputeRunningProcesses_v3(parent, &count, NULL));
	EQUAL(1, computing(inside));
}

static void in_mig(void)
{
	need_root();
	node("550.163.01", "A100-40");
	struct sim_node *n = edit(); /* as after the reset that an A100 wants */
	n->gpu[0].mig_current = n->gpu[0].mig_pending = 1;
	done(n);
	unsigned gi, other;
	inside = instance(0, 14, 0, &gi);
	nvmlDevice_t beside = instance(0, 19, 4, &other);
	parent = device(0);
	pid_t p = worker(SIM_COMPUTE, 0, gi, 0, 10, 0);
	worker(SIM_MPS_CLIENT, 0, other, 0, 10, 0);
	nvmlProcessInfo_t info[4];
	unsigned count = 4;
	OK(nvmlDeviceGetComputeRunningProcesses_v3(inside, &count, info));
	EQUAL(1, count);
	CHECK((int)info[0].pid == p && info[0].gpuInstanceId == gi && info[0].computeInstanceId == 0);
	EQUAL(1, by_mps(beside));
	EQUAL(0, by_mps(inside));
	EQUAL(2, computing(parent)); /* root */
	unprivileged(by_nobody);
}

static void detail(void)
{
	node("550.163.01", "H100-80 A100-40");
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0);
	worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 10, 0);
	nvmlProcessDetail_v1_t found[4];
	nvmlProcessDetailList_t list = { .version = nvmlProcessDetailList_v1, .mode = NVML_PROCESS_MODE_MPS };
	GIVES(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetRunningProcessDetailList(device(0), &list));
	EQUAL(1, list.numProcArrayEntries);
	list.procArray = found;
	OK(nvmlDeviceGetRunningProcessDetailList(device(0), &list));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetRunningProcessDetailList(device(1), &list));
	list.version = 7;
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetRunningProcessDetailList(device(0), &list));
}

static void names(void)
{
	node("550.163.01", "A100-40");
	char name[64] = "";
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 0);
	OK(nvmlSystemGetProcessName((unsigned)p, name, sizeof name));
	CHECK(strlen(name) > 0);
	end(p);
	GIVES(NVML_ERROR_NOT_FOUND, nvmlSystemGetProcessName((unsigned)p, name, sizeof name));
}

const struct check process_checks[] = {
	{ "process-sizes", "nvml.h nvmlDeviceGetComputeRunningProcesses_v3: count 0 asks, buffer may be NULL", sizes },
	{ "process-versions", "nvml.h nvmlProcessInfo_v1_t, _v2_t; ids 0xFFFFFFFF outside MIG", versions },
	{ "process-wide-entries", "go-nvml 75, nvitop PR 79: drivers 535.43 to 535.86 give garbage for two processes", wide },
	{ "process-dead-leave", "a context ends with its process; start time guards against reuse of a PID", dead },
	{ "process-mps", "nvidia-smi M+C; dcgm-exporter 478: clients in either list or both; docs/hardware T5: in both", mps },
	{ "process-mig", "nvml.h: per instance by MIG handle, MIG parent with privilege only", in_mig },
	{ "process-detail", "nvml.h nvmlDeviceGetRunningProcessDetailList: Hopper and newer", detail },
	{ "process-names", "nvml.h nvmlSystemGetProcessName", names },
	{ 0 },
};

/* fault.c: checks of lost GPUs, hanging calls and planned failures. */
#include "check.h"

#include <stdlib.h>

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void lost(void)
{
	node("550.163.01", "A100-40 A100-40");
	nvmlDevice_t old = device(0), d;
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 50);
	struct sim_node *n = edit();
	n->gpu[0].lost = 1;
	done(n);
	unsigned mw, count = 0;
	nvmlMemory_t m;
	GIVES(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetHandleByIndex_v2(0, &d));
	OK(nvmlDeviceGetHandleByIndex_v2(1, &d)); /* the index of the other stays */
	OK(nvmlDeviceGetCount_v2(&count));
	EQUAL(2, count);
	GIVES(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetPowerUsage(old, &mw));
	GIVES(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetMemoryInfo(old, &m));
	GIVES(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetComputeRunningProcesses_v3(old, &count, NULL));
}

/* told says whether a child that makes the call ends within a time. */
static int comes_back(pid_t p, int ms)
{
	for (int i = 0; i < ms / 5; i++) {
		if (waitpid(p, NULL, WNOHANG) == p)
			return 1;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	return 0;
}

static pid_t asks(void (*call)(void))
{
	pid_t p = fork();
	if (p == 0) {
		call();
		_exit(0);
	}
	return p;
}

static void power_of_0(void) { unsigned mw; nvmlDeviceGetPowerUsage(device(0), &mw); }
static void power_of_1(void) { unsigned mw; nvmlDeviceGetPowerUsage(device(1), &mw); }
static void memory_of_0(void) { nvmlMemory_t m; nvmlDeviceGetMemoryInfo(device(0), &m); }
static void start(void) { nvmlInit_v2(); }

static void hang(void)
{
	node("550.163.01", "A100-40 A100-40");
	struct sim_node *n = edit();
	n->gpu[0].hang = 1;
	done(n);
	pid_t stuck = asks(power_of_0), other = asks(power_of_1);
	CHECK(comes_back(other, 20000)); /* the rest of the node works */
	CHECK(!comes_back(stuck, 200));
	n = edit();
	n->gpu[0].hang = 0;
	done(n);
	CHECK(comes_back(stuck, 20000));
}

static void plan(const char *call, uint32_t gpu, int ret, uint32_t left)
{
	struct sim_node *n = edit();
	memset(n->fault, 0, sizeof n->fault);
	n->fault[0] = (struct sim_fault){ .used = call != NULL, .gpu = gpu, .ret = ret, .left = left };
	for (size_t i = 0; call && call[i] && i < sizeof n->fault[0].call - 1; i++)
		n->fault[0].call[i] = call[i];
	done(n);
}

static void hanging_call(void)
{
	node("550.163.01", "A100-40");
	plan("nvmlDeviceGetPowerUsage", 0, SIM_HANG, SIM_NONE);
	pid_t stuck = asks(power_of_0), other = asks(memory_of_0);
	CHECK(comes_back(other, 20000));
	CHECK(!comes_back(stuck, 200));
	plan("nvmlInit_v2", SIM_NONE, SIM_HANG, SIM_NONE);
	CHECK(comes_back(stuck, 20000));
	stuck = asks(start);
	CHECK(!comes_back(stuck, 200));
	plan(NULL, 0, 0, 0);
	CHECK(comes_back(stuck, 20000));
}

static void planned(void)
{
	node("550.163.01", "A100-40 A100-40");
	unsigned mw;
	nvmlMemory_t m;
	plan("nvmlDeviceGetPower*", 0, NVML_ERROR_UNKNOWN, 2);
	GIVES(NVML_ERROR_UNKNOWN, nvmlDeviceGetPowerUsage(device(0), &mw));
	OK(nvmlDeviceGetPowerUsage(device(1), &mw));
	OK(nvmlDeviceGetMemoryInfo(device(0), &m));
	GIVES(NVML_ERROR_UNKNOWN, nvmlDeviceGetPowerUsage(device(0), &mw));
	OK(nvmlDeviceGetPowerUsage(device(0), &mw)); /* it was planned for two */
}

static void no_driver(void)
{
	node("550.163.01", "A100-40");
	OK(nvmlShutdown());
	unsigned count, mw;
	GIVES(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
	GIVES(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetPowerUsage(NULL, &mw));
	struct sim_node *n = edit();
	n->driver_missing = 1;
	done(n);
	GIVES(NVML_ERROR_DRIVER_NOT_LOADED, nvmlInit_v2());
	GIVES(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
}

static void foreign(void)
{
	node("550.163.01", "A100-40");
	unsigned mw;
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetPowerUsage(NULL, &mw));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetPowerUsage((nvmlDevice_t)&mw, &mw));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetPowerUsage(device(0), NULL));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetComputeRunningProcesses_v3(device(0), NULL, NULL));
}

static void mps_view(void)
{
	node("550.163.01", "A100-40");
	unsigned mw;
	char uuid[64];
	nvmlDevice_t d = device(0);
	setenv("NVML_MPS_DEVICE_ENUMERATION", "1", 1);
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetPowerUsage(d, &mw));
	OK(nvmlDeviceGetUUID(d, uuid, sizeof uuid));
	setenv("NVML_MPS_DEVICE_ENUMERATION", "0", 1);
	OK(nvmlDeviceGetPowerUsage(d, &mw));
}

const struct check fault_checks[] = {
	{ "fault-lost", "nvml.h GPU_IS_LOST: the handle by index, and old handles", lost },
	{ "fault-hang", "a wedged driver does not come back (go-dcgm 38, nvidia_gpu_exporter 89)", hang },
	{ "fault-hanging-call", "the same for one call, nvmlInit among them", hanging_call },
	{ "fault-planned", "tests ask for it", planned },
	{ "fault-no-driver", "measured: Debian 535 to 555 without a driver: init 9, later calls 1", no_driver },
	{ "fault-mps-view", "NVML documentation, NVML_MPS_DEVICE_ENUMERATION: most calls NOT_SUPPORTED", mps_view },
	{ "fault-foreign-handle", "nvml.h INVALID_ARGUMENT", foreign },
	{ 0 },
};

/* energy.c: checks of energy, power, temperature and clocks. */
#include "check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* drivers of today still have nvmlDeviceGetTemperature */

static unsigned long long joules(unsigned gpu)
{
	unsigned long long mj;
	OK(nvmlDeviceGetTotalEnergyConsumption(device(gpu), &mj));
	return mj / 1000;
}

static unsigned watts(unsigned gpu)
{
	unsigned mw;
	OK(nvmlDeviceGetPowerUsage(device(gpu), &mw));
	return mw / 1000;
}

static void integral(void)
{
	node("550.163.01", "A100-40 A100-40");
	unsigned idle = watts(0);
	CHECK(idle > 20 && idle < 120);
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 50);
	unsigned busy = watts(0);
	CHECK(busy > 2 * idle);
	unsigned long long from = joules(0), other = joules(1);
	later(100000000);
	unsigned long long used = joules(0) - from, rest = joules(1) - other;
	CHECK(used >= 100ull * busy && used <= 101ull * busy);
	CHECK(rest >= 100ull * idle && rest <= 101ull * idle);
}

static void never_falls(void)
{
	node("550.163.01", "A100-40");
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 100);
	later(50000000);
	unsigned long long before = joules(0);
	end(p); /* now x power would be less than before */
	CHECK(joules(0) >= before);
	before = joules(0);
	later(-40000000); /* a clock that was set back */
	CHECK(joules(0) >= before && joules(0) < before + 1000);
	later(1000000);
	CHECK(joules(0) > before);
}

static void limits(void)
{
	need_root();
	node("550.163.01", "A100-40");
	unsigned low, high, now;
	OK(nvmlDeviceGetPowerManagementLimitConstraints(device(0), &low, &high));
	CHECK(low < high);
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 100);
	EQUAL(high, watts(0) * 1000);
	unsigned long long before = joules(0);
	later(100000000);
	OK(nvmlDeviceSetPowerManagementLimit(device(0), low));
	CHECK(joules(0) - before >= high / 10); /* 100 s under the old limit */
	OK(nvmlDeviceGetEnforcedPowerLimit(device(0), &now));
	EQUAL(low, now);
	EQUAL(low, watts(0) * 1000);
	unsigned long long why;
	OK(nvmlDeviceGetCurrentClocksEventReasons(device(0), &why));
	CHECK(why & nvmlClocksEventReasonSwPowerCap);
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceSetPowerManagementLimit(device(0), low - 1));
}

static unsigned degrees(void)
{
	unsigned t;
	OK(nvmlDeviceGetTemperature(device(0), NVML_TEMPERATURE_GPU, &t));
	return t;
}

static void temperature(void)
{
	node("550.163.01", "A100-40");
	unsigned cold = degrees();
	CHECK(cold >= 25 && cold <= 45);
	pid_t p = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 100);
	later(2000000);
	unsigned warming = degrees();
	later(600000000);
	unsigned hot = degrees();
	CHECK(cold < warming && warming < hot && hot < 92);
	end(p);
	degrees(); /* somebody looks: the process is gone from here on */
	later(600000000);
	CHECK(degrees() < warming);
	nvmlTemperature_t t = { .version = nvmlTemperature_v1, .sensorType = NVML_TEMPERATURE_GPU };
	OK(nvmlDeviceGetTemperatureV(device(0), &t));
	EQUAL(degrees(), t.temperature);
	struct sim_node *n = edit();
	n->gpu[0].temperature_set = 91;
	done(n);
	EQUAL(91, degrees());
}

static void clocks(void)
{
	node("550.163.01", "A100-40 T4");
	unsigned idle, busy, most;
	nvmlPstates_t state;
	unsigned long long why;
	OK(nvmlDeviceGetClockInfo(device(0), NVML_CLOCK_SM, &idle));
	OK(nvmlDeviceGetMaxClockInfo(device(0), NVML_CLOCK_SM, &most));
	OK(nvmlDeviceGetCurrentClocksEventReasons(device(0), &why));
	CHECK(why & nvmlClocksEventReasonGpuIdle);
	worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 10, 50);
	OK(nvmlDeviceGetClockInfo(device(0), NVML_CLOCK_SM, &busy));
	CHECK(idle < busy && busy == most);
	OK(nvmlDeviceGetCurrentClocksEventReasons(device(0), &why));
	CHECK(!(why & nvmlClocksEventReasonGpuIdle));
	OK(nvmlDeviceGetPerformanceState(device(0), &state));
	EQUAL(NVML_PSTATE_0, state);
	OK(nvmlDeviceGetPerformanceState(device(1), &state));
	EQUAL(NVML_PSTATE_8, state);
}

const struct check energy_checks[] = {
	{ "energy-integral", "nvml.h nvmlDeviceGetTotalEnergyConsumption: mJ since the driver was loaded; whole GPU", integral },
	{ "energy-never-falls", "a counter; exporters take its rate", never_falls },
	{ "energy-limits", "nvml.h nvmlDeviceSetPowerManagementLimit, SwPowerCap", limits },
	{ "energy-temperature", "nvml.h nvmlDeviceGetTemperature; listings: 30 degrees idle, below 92 under load", temperature },
	{ "energy-clocks", "public nvidia-smi -q: A100 stays in P0, T4 rests in P8", clocks },
	{ 0 },
};

/* event.c: checks of event sets. */
#include "check.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const unsigned long long xid_type = nvmlEventTypeXidCriticalError;

static void xid(uint32_t gpu, uint32_t gi, unsigned code)
{
	struct sim_node *n = edit();
	sim_event(n, gpu, gi, gi == SIM_NONE ? SIM_NONE : 0, xid_type, code);
	done(n);
}

static nvmlEventSet_t listen_to(unsigned gpu)
{
	nvmlEventSet_t set;
	OK(nvmlEventSetCreate(&set));
	OK(nvmlDeviceRegisterEvents(device(gpu), xid_type, set));
	return set;
}

static unsigned next(nvmlEventSet_t set)
{
	nvmlEventData_t e = { 0 };
	nvmlReturn_t r = nvmlEventSetWait_v2(set, &e, 0);
	if (r == NVML_ERROR_TIMEOUT)
		return 0;
	OK(r);
	EQUAL(xid_type, e.eventType);
	return (unsigned)e.eventData;
}

static void after_registration(void)
{
	node("550.163.01", "A100-40 A100-40");
	xid(0, SIM_NONE, 13);
	nvmlEventSet_t set = listen_to(0), late;
	EQUAL(0, next(set)); /* before the registration: not recorded */
	xid(1, SIM_NONE, 31); /* another GPU */
	EQUAL(0, next(set));
	xid(0, SIM_NONE, 48);
	xid(0, SIM_NONE, 63);
	late = listen_to(0);
	EQUAL(48, next(set));
	EQUAL(63, next(set));
	EQUAL(0, next(set)); /* each once */
	EQUAL(0, next(late));
	OK(nvmlEventSetFree(set));
	nvmlEventData_t e;
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetWait_v2(set, &e, 0));
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(set));
}

static void types(void)
{
	node("550.163.01", "A100-40 T4");
	nvmlEventSet_t set;
	unsigned long long can;
	nvmlEventData_t e;
	OK(nvmlDeviceGetSupportedEventTypes(device(0), &can));
	CHECK(can & xid_type && can & nvmlEventTypeDoubleBitEccError && !(can & nvmlEventTypeClock));
	OK(nvmlEventSetCreate(&set));
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(device(0), xid_type | nvmlEventTypeClock, set));
	xid(0, SIM_NONE, 13);
	EQUAL(0, next(set)); /* none of the types was registered */
	GIVES(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceRegisterEvents(device(0), 1ull << 40, set));
	OK(nvmlDeviceRegisterEvents(device(0), nvmlEventTypeDoubleBitEccError, set));
	xid(0, SIM_NONE, 48);
	struct sim_node *n = edit();
	sim_event(n, 0, SIM_NONE, SIM_NONE, nvmlEventTypeDoubleBitEccError, 0);
	done(n);
	OK(nvmlEventSetWait_v2(set, &e, 0));
	EQUAL(nvmlEventTypeDoubleBitEccError, e.eventType);
	OK(nvmlDeviceRegisterEvents(device(0), xid_type, set));
	EQUAL(0, next(set)); /* the 48 came before its type was registered */
	n = edit();
	n->gpu[0].ecc_current = 0;
	done(n);
	OK(nvmlDeviceGetSupportedEventTypes(device(0), &can));
	CHECK(!(can & nvmlEventTypeDoubleBitEccError));
}

static long ms_since(const struct timespec *from)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec - from->tv_sec) * 1000 + (t.tv_nsec - from->tv_nsec) / 1000000;
}

/* The event comes from another process while this one waits. */
static void wakes(void)
{
	node("550.163.01", "A100-40");
	nvmlEventSet_t set = listen_to(0);
	struct timespec start;
	nvmlEventData_t e;
	pid_t p = fork();
	if (p == 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		xid(0, SIM_NONE, 79);
		_exit(0);
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	OK(nvmlEventSetWait_v2(set, &e, 60000));
	CHECK(ms_since(&start) < 30000); /* woken, not timed out: loaded machines are slow */
	CHECK(e.eventData == 79 && e.device == device(0) && e.gpuInstanceId == 0xFFFFFFFFu);
	waitpid(p, NULL, 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	GIVES(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &e, 60));
	CHECK(ms_since(&start) >= 59);
}

static void overflow(void)
{
	node("550.163.01", "A100-40");
	nvmlEventSet_t set = listen_to(0);
	for (unsigned i = 1; i <= SIM_EVENTS + 10; i++)
		xid(0, SIM_NONE, i);
	EQUAL(11, next(set)); /* the oldest ten are lost */
	for (unsigned i = 12; i <= SIM_EVENTS + 10; i++)
		EQUAL(i, next(set));
	EQUAL(0, next(set));
}

static nvmlEventSet_t nobodys;

static void by_nobody(void)
{
	EQUAL(94, next(nobodys)); /* that of the whole device, not the one of the instance before it */
	EQUAL(0, next(nobodys));
}

static void in_mig(void)
{
	need_root();
	node("550.163.01", "H100-80");
	mig(0);
	unsigned gi;
	nvmlDevice_t inside = instance(0, 19, 0, &gi);
	nvmlEventSet_t set = listen_to(0);
	nobodys = listen_to(0);
	nvmlEventData_t e;
	GIVES(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(inside, xid_type, set));
	xid(0, gi, 43);
	xid(0, SIM_NONE, 94);
	OK(nvmlEventSetWait_v2(set, &e, 0));
	CHECK(e.eventData == 43 && e.gpuInstanceId == gi && e.computeInstanceId == 0);
	EQUAL(94, next(set));
	unprivileged(by_nobody);
}

static void lost(void)
{
	node("550.163.01", "A100-40 A100-40");
	nvmlEventSet_t set = listen_to(0), other = listen_to(1);
	nvmlEventData_t e;
	struct sim_node *n = edit();
	sim_event(n, 0, SIM_NONE, SIM_NONE, xid_type, 79);
	n->gpu[0].lost = 1;
	done(n);
	EQUAL(79, next(set)); /* what was told before it fell off the bus */
	GIVES(NVML_ERROR_GPU_IS_LOST, nvmlEventSetWait_v2(set, &e, 10000));
	GIVES(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(other, &e, 0));
}

static void version_1(void)
{
	node("550.163.01", "A100-40");
	nvmlEventSet_t set = listen_to(0);
	nvmlEventData_t e;
	memset(&e, 0x5a, sizeof e);
	xid(0, SIM_NONE, 13);
	OK(nvmlEventSetWait(set, &e, 0));
	CHECK(e.eventData == 13 && e.gpuInstanceId == 0x5a5a5a5a); /* the old structure ends before it */
}

const struct check event_checks[] = {
	{ "event-after-registration", "nvml.h nvmlDeviceRegisterEvents: earlier events are not recorded; registered GPUs only", after_registration },
	{ "event-types", "nvml.h: NOT_SUPPORTED registers none of the types; ECC events with ECC on", types },
	{ "event-wakes", "nvml.h nvmlEventSetWait_v2: sleeps until an event arrives, not longer than the timeout", wakes },
	{ "event-overflow", "a ring of 64 in the simulator; the real driver loses events too", overflow },
	{ "event-mig", "nvml.h: without privilege only events of the whole device; no registration of MIG devices", in_mig },
	{ "event-lost", "nvml.h nvmlEventSetWait_v2: GPU_IS_LOST", lost },
	{ "event-version-1", "nvml.h nvmlEventSetWait: the structure without instance ids", version_1 },
	{ 0 },
};

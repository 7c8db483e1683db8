/* events.c: event sets. Events lie in a ring of the state, numbered; a set remembers for each GPU from which number
 * on it listens, so it sees what came after its registration, in every process, and nothing else.
 *
 * Waiting looks every 20 ms, as the real one is woken by the driver. Whoever is 64 events late loses the oldest. */
#include "monitor.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETS = 32, TYPES = 16 };

struct set {
	int used;
	unsigned long long types[SIM_GPUS];
	uint64_t after[SIM_GPUS][TYPES]; /* events of that type with a higher number count */
	uint64_t seen;                   /* number of the last event that was delivered or passed over */
};

static struct set sets[SETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* taken after the state, never before it */

static struct set *find(nvmlEventSet_t handle)
{
	for (int i = 0; i < SETS; i++)
		if ((void *)handle == &sets[i] && sets[i].used)
			return &sets[i];
	return NULL;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = NVML_ERROR_MEMORY;
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < SETS && r != NVML_SUCCESS; i++)
		if (!sets[i].used) {
			sets[i] = (struct set){ .used = 1 };
			*set = (void *)&sets[i];
			r = NVML_SUCCESS;
		}
	pthread_mutex_unlock(&mutex);
	return r;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	pthread_mutex_lock(&mutex);
	struct set *s = find(set);
	if (s)
		s->used = 0;
	pthread_mutex_unlock(&mutex);
	return !sim_initialised() ? NVML_ERROR_UNINITIALIZED : s ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* ECC events "are available only on ECC-enabled devices", Clock is "Kepler only" (nvml.h). */
static unsigned long long supported(const struct sim_call *c)
{
	unsigned long long types = nvmlEventTypePState | nvmlEventTypeXidCriticalError;
	if (c->m->ecc && c->g->ecc_current)
		types |= nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
	if (c->m->units)
		types |= nvmlEventMigConfigChange;
	if (c->m->arch >= NVML_DEVICE_ARCH_AMPERE && c->n->branch >= 570) /* in the headers since then */
		types |= nvmlEventTypeGpuUnavailableError | nvmlEventTypeGpuRecoveryAction;
	return types;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	if (r == NVML_SUCCESS && !eventTypes)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*eventTypes = supported(&c);
	return sim_leave(&c, r);
}

/* NOT_SUPPORTED registers none of the types. MIG devices have no events of their own (nvml.h): NOT_SUPPORTED too. */
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
	pthread_mutex_lock(&mutex);
	struct set *s = find(set);
	if (r == NVML_SUCCESS && (!s || eventTypes & ~nvmlEventTypeAll))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS && eventTypes & ~supported(&c))
		r = NVML_ERROR_NOT_SUPPORTED;
	for (int t = 0; r == NVML_SUCCESS && t < TYPES; t++)
		if (eventTypes & ~s->types[c.gpu] & 1ull << t)
			s->after[c.gpu][t] = c.n->event_sequence;
	if (r == NVML_SUCCESS)
		s->types[c.gpu] |= eventTypes;
	pthread_mutex_unlock(&mutex);
	return sim_leave(&c, r);
}

static int wanted(const struct sim_node *n, const struct set *s, const struct sim_event *e)
{
	if (e->gpu >= SIM_GPUS || !(s->types[e->gpu] & e->type) || e->sequence <= s->after[e->gpu][__builtin_ctzll(e->type)])
		return 0;
	/* Of a MIG GPU the unprivileged hear what concerns the whole of it (nvml.h). */
	return n->gpu[e->gpu].mig_current != NVML_DEVICE_MIG_ENABLE || e->gi == SIM_NONE || sim_root();
}

/* next delivers the oldest event that the set wants. Then a lost GPU is told, if the set listens to one. */
static nvmlReturn_t next(const struct sim_node *n, struct set *s, struct sim_event *out)
{
	uint64_t oldest = n->event_sequence >= SIM_EVENTS ? n->event_sequence - SIM_EVENTS + 1 : 1;
	for (uint64_t q = s->seen + 1 > oldest ? s->seen + 1 : oldest; q <= n->event_sequence; q++) {
		const struct sim_event *e = &n->event[q % SIM_EVENTS];
		s->seen = q;
		if (wanted(n, s, e)) {
			*out = *e;
			return NVML_SUCCESS;
		}
	}
	for (uint32_t g = 0; g < n->gpu_count; g++)
		if (s->types[g] && n->gpu[g].lost)
			return NVML_ERROR_GPU_IS_LOST;
	return NVML_ERROR_TIMEOUT;
}

static nvmlReturn_t look(const char *call, nvmlEventSet_t set, struct sim_event *out)
{
	struct sim_call c;
	nvmlReturn_t r = sim_enter_system(&c, call, 0);
	pthread_mutex_lock(&mutex);
	struct set *s = find(set);
	if (r == NVML_SUCCESS)
		r = s ? next(c.n, s, out) : NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_unlock(&mutex);
	return sim_leave(&c, r);
}

static uint64_t monotonic_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static nvmlReturn_t wait(const char *call, nvmlEventSet_t set, unsigned int ms, struct sim_event *out)
{
	uint64_t start = monotonic_ms(), pause = getenv("GPUSLOT_SIM_TRUST") ? 1000 : 50; /* a driver sleeps until it has one */
	for (;;) {
		nvmlReturn_t r = look(call, set, out);
		uint64_t gone = monotonic_ms() - start, left = gone < ms ? ms - gone : 0;
		if (r != NVML_ERROR_TIMEOUT || !left)
			return r;
		uint64_t now = left < pause ? left : pause;
		nanosleep(&(struct timespec){ .tv_sec = (time_t)(now / 1000), .tv_nsec = (long)(now % 1000) * 1000000 }, NULL);
	}
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	struct sim_event e;
	if (sim_initialised() && !data)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = wait(__func__, set, timeoutms, &e);
	if (r == NVML_SUCCESS)
		*data = (nvmlEventData_t){ .device = sim_handle(e.gpu), .eventType = e.type, .eventData = e.data,
			.gpuInstanceId = e.gi, .computeInstanceId = e.ci };
	return r;
}

/* The structure of version 1 ended before the instance ids: what stands there is left alone. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlEventData_t full;
	if (sim_initialised() && !data)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = nvmlEventSetWait_v2(set, &full, timeoutms);
	if (r == NVML_SUCCESS)
		memcpy(data, &full, offsetof(nvmlEventData_t, gpuInstanceId));
	return r;
}

/* R615. Without structured events it is version 2 in other clothes. */
nvmlReturn_t nvmlEventSetWait_v3(nvmlEventSet_t set, nvmlEventSetWait_v3_t *params)
{
	struct sim_event e;
	if (sim_initialised() && !params)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = wait(__func__, set, params ? params->timeoutMs : 0, &e);
	if (r == NVML_SUCCESS)
		*params = (nvmlEventSetWait_v3_t){ .timeoutMs = params->timeoutMs, .dataType = NVML_EVENT_DATA_TYPE_NVML_EVENT,
			.eventType = e.type, .eventData = e.data, .timestampUsec = e.at, .gpuInstanceId = e.gi, .computeInstanceId = e.ci };
	return r;
}

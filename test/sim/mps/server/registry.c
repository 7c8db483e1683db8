/* registry.c: the server and its clients in the state of the simulated node. */
#include "server.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../cuda/internal.h"

/* A server's own memory: 27 MiB on a V100 (thread nos 39), 66 on an H200 with 580.159.04 (docs/hardware, T5). */
static uint64_t memory_of(const struct sim_gpu *g)
{
	const struct sim_model *m = sim_model(g->model);
	return (m && m->cc_major == 9 ? 66ull : 27ull) << 20;
}

enum { COMPUTE_PROHIBITED = 2, COMPUTE_EXCLUSIVE_PROCESS = 3 }; /* nvmlComputeMode_t */

static struct sim_mps_server *own(struct sim_node *n)
{
	for (int i = 0; i < SIM_SERVERS; i++)
		if (n->mps_server[i].used && n->mps_server[i].pid == getpid())
			return &n->mps_server[i];
	return NULL;
}

/* With MIG on the compute mode belongs to the MIG device (nvml.h); the GPU's own is that of another time. */
static uint32_t mode_of(const struct sim_node *n, const struct device *d)
{
	const struct sim_gpu *g = &n->gpu[d->gpu];
	for (int i = 0; d->gi != SIM_NONE && i < SIM_GIS; i++)
		for (int k = 0; g->gi[i].used && g->gi[i].id == d->gi && k < SIM_CIS; k++)
			if (g->gi[i].ci[k].used && g->gi[i].ci[k].id == d->ci)
				return g->gi[i].ci[k].compute_mode;
	return g->compute_mode;
}

static int occupied(const struct sim_node *n, const struct device *d)
{
	uint32_t mode = mode_of(n, d);
	for (int i = 0; mode == COMPUTE_EXCLUSIVE_PROCESS && i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (p->used && p->pid != getpid() && p->gpu == d->gpu && p->gi == d->gi && p->ci == d->ci && p->kind != SIM_GRAPHICS)
			return 1;
	}
	return mode == COMPUTE_PROHIBITED;
}

static const char *take_devices(struct sim_node *n, struct host *h)
{
	struct devices all = all_devices(n), mine = select_devices(n, &all, getenv("CUDA_VISIBLE_DEVICES"));
	fold_mig(&mine);
	if (n->driver_missing || mine.count == 0)
		return "no CUDA-capable device is detected";
	for (int i = 0; i < mine.count; i++) {
		const struct device *d = &mine.d[i];
		if (occupied(n, d))
			return "CUDA-capable device(s) is/are busy or unavailable";
		struct sim_process *p = sim_add_process(n, getpid(), SIM_MPS_SERVER, d->gpu, d->gi, d->ci);
		if (!p)
			return "out of memory";
		p->memory = p->memory_peak = memory_of(&n->gpu[d->gpu]);
		h->device[i] = (struct mps_device){ d->gpu, d->gi, d->ci };
	}
	h->devices = (uint32_t)mine.count;
	return NULL;
}

int registry_open(struct host *h, const char **why)
{
	struct sim_node *n = sim_write();
	struct sim_mps_server *s = NULL;
	*why = n ? take_devices(n, h) : "no CUDA-capable device is detected";
	for (int i = 0; !*why && !s && i < SIM_SERVERS; i++)
		if (!n->mps_server[i].used)
			s = &n->mps_server[i];
	if (!*why && !s)
		*why = "out of memory";
	if (*why) {
		if (n)
			sim_abort();
		return -1;
	}
	*s = (struct sim_mps_server){ .used = 1, .pid = getpid(), .start = sim_start_time(getpid()), .daemon = getppid(),
		.uid = geteuid(), .state = SIM_SERVER_INITIALIZING, .fault_gpu = SIM_NONE, .since = sim_now(n) };
	h->driver = atoi(n->driver);
	sim_end();
	for (uint32_t i = 0; i < h->devices; i++)
		server_log("Volta MPS: Creating server context on device %u", i);
	return 0;
}

/* What later clients get; those that are there keep theirs. */
void registry_settings(const struct host *h)
{
	struct sim_node *n = sim_write();
	struct sim_mps_server *s = n ? own(n) : NULL;
	if (s) {
		s->percentage = (uint32_t)(h->percentage * 100 + 0.5);
		for (int i = 0; i < SIM_GPUS; i++)
			s->limit[i] = h->limit[i] ? h->limit[i] : SIM_UNSET;
		if (s->state == SIM_SERVER_INITIALIZING)
			s->state = SIM_SERVER_ACTIVE;
	}
	if (n)
		sim_end();
}

static int places(const struct sim_node *n)
{
	return n->cuda >= CUDA_13_1 ? CLIENTS_NEW : CLIENTS_OLD;
}

static int taken(const struct host *h)
{
	int count = 0;
	for (int i = 0; i < h->guests; i++)
		count += h->guest[i].pid != 0;
	return count - 1; /* the one that asks is in it */
}

static struct sim_mps_client *free_place(struct sim_node *n)
{
	for (int i = 0; i < SIM_CLIENTS; i++)
		if (!n->mps_client[i].used)
			return &n->mps_client[i];
	return NULL;
}

static void enter(struct sim_node *n, const struct host *h, const struct guest *g, struct sim_mps_client *c)
{
	*c = (struct sim_mps_client){ .used = 1, .pid = g->pid, .start = sim_start_time(g->pid), .server = getpid(), .uid = g->uid,
		.context = g->id, .percentage = (uint32_t)(g->percentage * 100 + 0.5), .priority = g->priority, .gpu = h->device[0].gpu,
		.gi = h->device[0].gi, .ci = h->device[0].ci, .since = sim_now(n) };
	for (int i = 0; i < SIM_GPUS; i++)
		c->limit[i] = g->limit[i] ? g->limit[i] : SIM_UNSET;
}

int registry_join(struct host *h, struct guest *g, struct mps_link *link)
{
	struct sim_node *n = sim_write();
	struct sim_mps_server *s = n ? own(n) : NULL;
	struct sim_mps_client *c = s ? free_place(n) : NULL;
	int result = !s ? MPS_CONNECTION_FAILED : s->state == SIM_SERVER_FAULT ? MPS_SERVER_NOT_READY :
		!c || taken(h) >= places(n) ? MPS_MAX_CLIENTS : MPS_OK;
	if (result == MPS_OK) {
		enter(n, h, g, c);
		*link = (struct mps_link){ .fd = -1, .server = getpid(), .percentage = c->percentage, .fixed = g->fixed, .priority = g->priority,
			.devices = h->devices };
		memcpy(link->device, h->device, sizeof link->device);
		memcpy(link->limit, c->limit, sizeof link->limit);
	}
	if (n)
		sim_end();
	return result;
}

/* A process that lives on gives its place back here; a dead one has left the state already. */
void registry_leave(struct host *h, const struct guest *g)
{
	(void)h;
	struct sim_node *n = sim_write();
	for (int i = 0; n && i < SIM_CLIENTS; i++)
		if (n->mps_client[i].used && n->mps_client[i].pid == g->pid && n->mps_client[i].server == getpid())
			sim_mps_leave(n, &n->mps_client[i]);
	if (n) {
		sim_mps_recover(n);
		sim_end();
	}
}

uint32_t registry_state(const struct host *h, int32_t *culprit)
{
	(void)h;
	uint32_t state = SIM_SERVER_ACTIVE;
	const struct sim_node *n = sim_read();
	for (int i = 0; n && i < SIM_SERVERS; i++)
		if (n->mps_server[i].used && n->mps_server[i].pid == getpid()) {
			state = n->mps_server[i].state;
			*culprit = n->mps_server[i].culprit;
		}
	if (n)
		sim_end();
	return state;
}

int32_t registry_accused(const struct host *h)
{
	(void)h;
	const struct sim_mps_client *accused = NULL;
	const struct sim_node *n = sim_read();
	for (int i = 0; n && i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->server == getpid() && c->error == CUDA_ERROR_ILLEGAL_ADDRESS && (!accused || c->context < accused->context))
			accused = c;
	}
	int32_t pid = accused ? accused->pid : 0;
	if (n)
		sim_end();
	return pid;
}

int registry_terminate(const struct host *h, pid_t client)
{
	(void)h;
	struct sim_node *n = sim_write();
	int found = n && sim_mps_terminate(n, getpid(), client);
	if (n)
		sim_end();
	return found ? 0 : 1;
}

/* context.c: contexts. The first one on a device puts the process into the state, the last one takes it out. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static CUcontext contexts;           /* of the process, with the API lock */
enum { STACK = 32 };
static __thread CUcontext stack[STACK]; /* of the thread: the last one is current */
static __thread int depth;

static int alive(CUcontext c)
{
	CUcontext at = contexts;
	while (at && at != c)
		at = at->next;
	return at != NULL;
}

/* What one context takes. Hopper: 30 MiB and 3.7 MiB a multiprocessor, in pages of 2 MiB. An H200 with 580.159.04 showed
 * 518, 276, 146 and 74 MiB with 132, 66, 32 and 12 of them (docs/hardware, T6). Other GPUs are not measured: 64 MiB and
 * 2 MiB fit what NVIDIA measured on one of 188: under 10G and 2G limits 9,728 and 1,536 MiB could be allocated in steps
 * of 256 (Dynamo guide, R615). Turing takes less: public listings of a T4 with 40 show 98 to 107 MiB. */
uint64_t context_bytes(const struct view *v)
{
	uint64_t multiprocessors = view_allowed(v);
	if (v->m->cc_major == 9)
		return (300 + 37 * multiprocessors) / 20 * PAGE;
	int turing = v->m->cc_major == 7 && v->m->cc_minor == 5;
	return ((turing ? 24 : 64) + 2 * multiprocessors) << 20;
}

struct sim_process *own_process(struct view *v) { return sim_find_process(v->w, own_pid(), v->d.gpu, v->d.gi, v->d.ci); }

/* EXCLUSIVE_PROCESS: one process with contexts, and an MPS server is one; its clients come in through it. */
static int taken(const struct view *v)
{
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &v->n->process[i];
		if (p->used && p->gpu == v->d.gpu && p->gi == v->d.gi && p->ci == v->d.ci && p->pid != own_pid() &&
		    (p->kind == SIM_COMPUTE || p->kind == SIM_MPS_SERVER))
			return 1;
	}
	return 0;
}

static CUresult admitted(const struct view *v)
{
	const struct sim_partition *p;
	if (client_partition(v->n, v->d.gpu, &p) < 0)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	if (view_mode(v) == CU_COMPUTEMODE_PROHIBITED)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	int refused = !session.server && view_mode(v) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && taken(v);
	return refused ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

/* GPUSLOT_SIM_GRAPHICS: the process uses OpenGL or Vulkan in place of CUDA. Compute modes are about CUDA only, and NVML
 * has such processes in the list of graphics (nvml.h). */
static int draws(void) { return !session.server && getenv("GPUSLOT_SIM_GRAPHICS") != NULL; }

static CUresult enter(struct view *v)
{
	struct sim_process *p = own_process(v);
	CUresult r = p || draws() ? CUDA_SUCCESS : admitted(v);
	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		p = sim_add_process(v->w, own_pid(), session.server ? SIM_MPS_CLIENT : draws() ? SIM_GRAPHICS : SIM_COMPUTE, v->d.gpu, v->d.gi, v->d.ci);
	if (!p)
		return CUDA_ERROR_OPERATING_SYSTEM; /* the state's table is full */
	p->server = session.server;
	client_device(v->w, &v->d);
	p->limit = session.limit[v->ordinal];
	p->percentage = (session.percentage + 50) / 100;
	uint64_t bytes = context_bytes(v);
	if (p->limit != SIM_UNSET && p->memory + bytes > p->limit)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (sim_memory_used(v->n, v->d.gpu, v->d.gi) + bytes > view_memory(v))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!v->profile && bytes > sim_cgroup_room(v->n, v->d.gpu, own_pid()))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS)
		return r; /* view_close takes the new process back */
	sim_settle(v->w);
	p->memory += bytes;
	sim_settle(v->w); /* notes the peak */
	return CUDA_SUCCESS;
}

/* GPUSLOT_SIM_CONTEXT_MS: how long a real driver takes for a context. */
static void take_time(void)
{
	const char *ms = getenv("GPUSLOT_SIM_CONTEXT_MS");
	long n = ms ? strtol(ms, NULL, 10) : 0;
	struct timespec t = { n / 1000, n % 1000 * 1000000 };
	while (n > 0 && nanosleep(&t, &t) != 0)
		;
}

static CUresult make(CUcontext *to, CUdevice device, int primary, const char *call)
{
	take_time();
	struct view v;
	CUcontext c = calloc(1, sizeof *c);
	CUresult r = c ? view_open(&v, call, device, 1) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && session.server)
		r = client_error(v.n);
	if (r == CUDA_SUCCESS)
		r = enter(&v);
	if (r == CUDA_SUCCESS) {
		*c = (struct CUctx_st){ .next = contexts, .device = device, .primary = primary, .ecc = v.g->ecc_volatile.uncorrected };
		pthread_cond_init(&c->changed, NULL);
		*to = contexts = c;
	} else
		free(c);
	view_close(&v, r == CUDA_SUCCESS);
	return r;
}

static int device_has_contexts(CUdevice device)
{
	for (CUcontext c = contexts; c; c = c->next)
		if (c->device == device)
			return 1;
	return 0;
}

static void destroy(CUcontext c)
{
	for (CUcontext *at = &contexts; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	for (int i = 0; i < depth; i++)
		if (stack[i] == c)
			memmove(&stack[i], &stack[i + 1], (size_t)(--depth - i) * sizeof *stack), i--;
	struct view v;
	CUresult r = view_open(&v, "cuCtxDestroy", c->device, 1);
	struct sim_process *p = r == CUDA_SUCCESS ? own_process(&v) : NULL;
	uint64_t bytes = free_all(c) + (r == CUDA_SUCCESS ? context_bytes(&v) : 0);
	if (p && device_has_contexts(c->device)) {
		sim_settle(v.w);
		p->load = p->memory_load = 0;
		p->memory -= bytes < p->memory ? bytes : p->memory;
	} else if (p)
		sim_drop_process(v.w, p);
	view_close(&v, 1);
	c->dead = 1;
	pthread_cond_broadcast(&c->changed);
	if (c->engine)
		return; /* its thread frees it */
	pthread_cond_destroy(&c->changed);
	free(c);
}

CUresult context_current(CUcontext *c)
{
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (depth == 0 || !alive(stack[depth - 1]))
		return CUDA_ERROR_INVALID_CONTEXT;
	*c = stack[depth - 1];
	return (*c)->error;
}

/* What happened to the context since the last look; a fault stays. */
CUresult context_health(CUcontext c, const struct view *v)
{
	if (c->error == CUDA_SUCCESS && v->g->ecc_volatile.uncorrected > c->ecc)
		c->error = CUDA_ERROR_ECC_UNCORRECTABLE;
	if (c->error == CUDA_SUCCESS && session.server)
		c->error = client_error(v->n);
	return c->error;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	(void)flags; /* how to wait for the GPU */
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	CUresult r = depth < STACK ? make(context, device, 0, __func__) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		stack[depth++] = *context;
	api_unlock();
	return r;
}

API CUresult cuCtxDestroy_v2(CUcontext context)
{
	api_lock();
	CUresult r = !session.pid ? CUDA_ERROR_NOT_INITIALIZED : alive(context) && !context->primary ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		destroy(context);
	api_unlock();
	return r;
}

static CUcontext primary(CUdevice device)
{
	CUcontext c = contexts;
	while (c && !(c->device == device && c->primary))
		c = c->next;
	return c;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	CUcontext c = primary(device);
	CUresult r = c ? CUDA_SUCCESS : make(&c, device, 1, __func__);
	if (r == CUDA_SUCCESS) {
		c->references++;
		*context = c;
	}
	api_unlock();
	return r;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	api_lock();
	CUcontext c = primary(device);
	CUresult r = c ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (c && --c->references == 0)
		destroy(c);
	api_unlock();
	return r;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (device < 0 || device >= session.devices.count)
		return CUDA_ERROR_INVALID_DEVICE;
	api_lock();
	*flags = 0;
	*active = primary(device) != NULL;
	api_unlock();
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context)
{
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext context, int instead)
{
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	api_lock();
	CUresult r = alive(context) || (instead && !context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS && instead && depth)
		depth--;
	if (r == CUDA_SUCCESS && depth == STACK)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && context)
		stack[depth++] = context;
	api_unlock();
	return r;
}

API CUresult cuCtxSetCurrent(CUcontext context) { return push(context, 1); }
API CUresult cuCtxPushCurrent_v2(CUcontext context) { return push(context, 0); }

API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	CUcontext c = NULL;
	CUresult r = context_current(&c);
	if (c)
		*device = c->device;
	api_unlock();
	return c ? CUDA_SUCCESS : r;
}

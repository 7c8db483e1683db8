/* launch.c: kernels. Each context has one engine, a thread that runs its kernels one after the other: the load stands
 * in the state while one runs. */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct CUmod_st { int magic; };
struct CUfunc_st { const char *name; struct kernel kernel; };

/* The XID that the driver reports with each (XID catalogue: 31 MMU fault, 13 graphics engine exception, 43 stopped
 * processing). */
static struct CUfunc_st functions[] = {
	{ "load", { 0 } },
	{ "illegal_address", { .ends_in = CUDA_ERROR_ILLEGAL_ADDRESS, .xid = 31, .percent = 1 } },
	{ "illegal_instruction", { .ends_in = CUDA_ERROR_ILLEGAL_INSTRUCTION, .xid = 13, .percent = 1 } },
	{ "misaligned_address", { .ends_in = CUDA_ERROR_MISALIGNED_ADDRESS, .xid = 13, .percent = 1 } },
	{ "assert", { .ends_in = CUDA_ERROR_ASSERT, .xid = 43, .percent = 1 } },
	{ "launch_failed", { .ends_in = CUDA_ERROR_LAUNCH_FAILED, .xid = 13, .percent = 1 } },
};

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	CUcontext c;
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	CUresult r = context_current(&c);
	api_unlock();
	if (r == CUDA_SUCCESS && !(*module = calloc(1, sizeof **module)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	return r;
}

API CUresult cuModuleUnload(CUmodule module)
{
	free(module);
	return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		if (strcmp(functions[i].name, name) == 0)
			return *function = &functions[i], CUDA_SUCCESS;
	return CUDA_ERROR_NOT_FOUND;
}

/* The share that the process may use, in per cent of the device's multiprocessors. */
static uint32_t share(const struct view *v)
{
	uint32_t all = view_multiprocessors(v), percent = all ? view_allowed(v) * 100 / all : 100;
	return percent ? percent : 1;
}

/* Sets the load; settles what was before it. */
static CUresult work(CUcontext c, uint32_t percent, struct kernel *k)
{
	struct view v;
	CUresult r = view_open(&v, "cuLaunchKernel", c->device, 1);
	if (r == CUDA_SUCCESS)
		r = context_health(c, &v);
	struct sim_process *p = r == CUDA_SUCCESS || percent == 0 ? v.w ? own_process(&v) : NULL : NULL;
	if (p) {
		sim_settle(v.w);
		p->load = percent < share(&v) ? percent : share(&v);
		p->memory_load = p->load / 2; /* some: nothing is known of what a kernel reads */
		sim_sample(v.w, v.d.gpu);
		if (k && p->load < percent) /* fewer multiprocessors, the same work */
			k->milliseconds = (uint32_t)((uint64_t)k->milliseconds * percent / p->load);
	}
	view_close(&v, p != NULL);
	return r;
}

static CUresult look(CUcontext c)
{
	struct view v;
	CUresult r = view_open(&v, "cuCtxSynchronize", c->device, 0);
	if (r == CUDA_SUCCESS)
		r = context_health(c, &v);
	view_close(&v, 0);
	return r;
}

static void fault(CUcontext c, const struct kernel *k)
{
	struct view v;
	enum { XID = 8 }; /* nvmlEventTypeXidCriticalError */
	if (view_open(&v, "cuLaunchKernel", c->device, 1) == CUDA_SUCCESS) {
		sim_event(v.w, v.d.gpu, v.d.gi, v.d.ci, XID, k->xid);
		v.w->gpu[v.d.gpu].last_xid = k->xid;
		if (session.server)
			sim_mps_fault(v.w, session.server, own_pid(), v.d.gpu, k->ends_in);
	}
	view_close(&v, 1);
}

static struct timespec after(uint64_t milliseconds)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t); /* what condition variables count in */
	uint64_t ns = (uint64_t)t.tv_nsec + milliseconds * 1000000;
	return (struct timespec){ t.tv_sec + (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
}

static uint64_t milliseconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* One kernel from begin to end, with the API lock held but while it waits. */
static CUresult run(CUcontext c, struct kernel k)
{
	CUresult r = work(c, k.percent, &k);
	c->running = 1;
	pthread_cond_broadcast(&c->changed);
	uint64_t end = milliseconds_now() + k.milliseconds, now;
	while (r == CUDA_SUCCESS && !c->dead && (now = milliseconds_now()) < end) {
		struct timespec t = after(end - now < 20 ? end - now : 20);
		pthread_cond_timedwait(&c->changed, api_mutex(), &t);
		r = c->dead ? CUDA_SUCCESS : look(c);
	}
	if (r == CUDA_SUCCESS && !c->dead && k.ends_in) {
		fault(c, &k);
		r = k.ends_in;
	}
	if (!c->dead)
		work(c, 0, NULL);
	c->running = 0;
	return r;
}

static void *engine(void *arg)
{
	CUcontext c = arg;
	api_lock();
	while (!c->dead) {
		if (c->count == 0) {
			pthread_cond_wait(&c->changed, api_mutex());
			continue;
		}
		CUresult r = run(c, c->queue[c->first]);
		if (r != CUDA_SUCCESS && c->error == CUDA_SUCCESS)
			c->error = r;
		c->first = (c->first + 1) % KERNELS;
		c->count = c->error ? 0 : c->count - 1;
		pthread_cond_broadcast(&c->changed);
	}
	api_unlock();
	pthread_cond_destroy(&c->changed);
	free(c);
	return NULL;
}

/* The engine takes no signal of the program. */
static CUresult start_engine(CUcontext c)
{
	pthread_t t;
	sigset_t all, old;
	if (c->engine)
		return CUDA_SUCCESS;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	c->engine = pthread_create(&t, NULL, engine, c) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!c->engine)
		return CUDA_ERROR_OPERATING_SYSTEM;
	pthread_detach(t);
	return CUDA_SUCCESS;
}

static CUresult enqueue(CUcontext c, struct kernel k)
{
	CUresult r = start_engine(c);
	while (r == CUDA_SUCCESS && c->count == KERNELS && !c->dead) {
		pthread_cond_wait(&c->changed, api_mutex());
		r = c->error;
	}
	if (r != CUDA_SUCCESS)
		return r;
	c->queue[(c->first + c->count++) % KERNELS] = k;
	pthread_cond_broadcast(&c->changed);
	return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, CUstream stream, void **parameters, void **extra)
{
	(void)shared, (void)stream, (void)extra;
	CUcontext c;
	if (!f || !gx || !gy || !gz || !bx || !by || !bz)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel k = f->kernel;
	if (!k.ends_in) {
		if (!parameters || !parameters[0] || !parameters[1])
			return CUDA_ERROR_INVALID_VALUE;
		k = (struct kernel){ .percent = *(unsigned *)parameters[0], .milliseconds = *(unsigned *)parameters[1] };
		if (k.percent < 1 || k.percent > 100)
			return CUDA_ERROR_INVALID_VALUE;
	}
	api_lock();
	CUresult r = context_current(&c);
	if (r == CUDA_SUCCESS)
		r = enqueue(c, k);
	/* An idle GPU begins it at once. The engine here may wait for a processor: it is waited for. */
	while (r == CUDA_SUCCESS && c->count == 1 && !c->running && !c->error && !c->dead)
		pthread_cond_wait(&c->changed, api_mutex());
	api_unlock();
	return r;
}

/* Also an idle context learns here what happened to it. */
static CUresult finish(int wait)
{
	CUcontext c;
	api_lock();
	CUresult r = context_current(&c);
	while (r == CUDA_SUCCESS && wait && c->count && !c->dead) {
		pthread_cond_wait(&c->changed, api_mutex());
		r = c->error;
	}
	if (r == CUDA_SUCCESS && c->count)
		r = CUDA_ERROR_NOT_READY;
	else if (r == CUDA_SUCCESS)
		r = look(c);
	api_unlock();
	return r;
}

API CUresult cuCtxSynchronize(void) { return finish(1); }

API CUresult cuStreamSynchronize(CUstream stream)
{
	return stream ? CUDA_ERROR_INVALID_HANDLE : finish(1); /* only the default stream */
}

API CUresult cuStreamQuery(CUstream stream) { return stream ? CUDA_ERROR_INVALID_HANDLE : finish(0); }

/* memory.c: device memory: only its size is real. */
#include "internal.h"

#include <stdlib.h>
#include <unistd.h>

struct block { struct block *next; CUcontext owner; CUdeviceptr at; uint64_t bytes; };
static struct block *blocks; /* with the API lock */
static CUdeviceptr next_address = 0x7f0000000000ull;

/* What the device has left, and what the limit leaves: the smaller one. */
static uint64_t room(struct view *v, const struct sim_process *p)
{
	uint64_t total = view_memory(v), used = sim_memory_used(v->n, v->d.gpu, v->d.gi);
	uint64_t left = used < total ? total - used : 0;
	if (p && p->limit != SIM_UNSET) {
		uint64_t own = p->memory < p->limit ? p->limit - p->memory : 0;
		left = own < left ? own : left;
	}
	uint64_t cgroup = v->profile ? SIM_UNSET : sim_cgroup_room(v->n, v->d.gpu, own_pid());
	return cgroup < left ? cgroup : left;
}

/* R615: a client within its soft limit that finds the GPU full has the server end one that is beyond its own; that one
 * meets 810 at its next call (MPS documentation, "MPS Pressure Handling and Eviction"). 1: memory came free. */
static int evict(struct view *v)
{
	if (!session.server || sim_cgroup_total(v->n, v->d.gpu, own_pid()) == SIM_UNSET || sim_cgroup_over(v->n, v->d.gpu, own_pid()))
		return 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		struct sim_process *p = &v->w->process[i];
		if (!p->used || p->server != session.server || p->gpu != v->d.gpu || p->pid == own_pid() || !p->memory ||
			!sim_cgroup_over(v->n, v->d.gpu, p->pid))
			continue;
		sim_mps_terminate(v->w, session.server, p->pid);
		p->memory = 0;
		return 1;
	}
	return 0;
}

static CUresult book(struct view *v, uint64_t bytes, int more)
{
	struct sim_process *p = own_process(v);
	if (!p)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED; /* somebody took the process out of the state */
	while (more && bytes > room(v, p))
		if (bytes > sim_cgroup_room(v->n, v->d.gpu, own_pid()) || (p->limit != SIM_UNSET && p->memory + bytes > p->limit) || !evict(v))
			return CUDA_ERROR_OUT_OF_MEMORY;
	sim_settle(v->w);
	p->memory = more ? p->memory + bytes : p->memory - bytes;
	sim_settle(v->w); /* notes the peak */
	return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	CUcontext c;
	struct view v = { 0 };
	if (!pointer || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > SIZE_MAX - PAGE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_lock();
	struct block *b = malloc(sizeof *b);
	CUresult r = b ? context_current(&c) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && (r = view_open(&v, __func__, c->device, 1)) == CUDA_SUCCESS)
		r = context_health(c, &v);
	if (r == CUDA_SUCCESS) {
		*b = (struct block){ blocks, c, next_address, (bytes + PAGE - 1) / PAGE * PAGE };
		r = book(&v, b->bytes, 1);
	}
	view_close(&v, r == CUDA_SUCCESS);
	if (r == CUDA_SUCCESS) {
		blocks = b;
		next_address += b->bytes;
		*pointer = b->at;
	} else
		free(b);
	api_unlock();
	return r;
}

/* From 580 on a limit of MPS covers managed memory: 3 GiB under 2 GiB fail at once on an H200 with 580.159.04
 * (docs/hardware, T7). Whether several allocations add up was not measured, nor what older drivers do: inferred that
 * they do not and that those have no limit, which is the bad case. */
static CUresult managed_room(CUcontext c, size_t bytes)
{
	struct view v;
	CUresult r = view_open(&v, "cuMemAllocManaged", c->device, 1);
	const struct sim_process *p = r == CUDA_SUCCESS ? own_process(&v) : NULL;
	if (p && session.server && v.n->branch >= SIM_MEASURED && p->limit != SIM_UNSET && p->memory + bytes > p->limit)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	view_close(&v, 0);
	return r;
}

/* Managed memory is mostly missing from what NVML tells of a process (pynvml issue 63: 60 GB shown as 5). Its pages are
 * not booked. */
API CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	CUcontext c;
	if (!pointer || bytes == 0 || flags == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > SIZE_MAX - PAGE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_lock();
	CUresult r = context_current(&c);
	if (r == CUDA_SUCCESS)
		r = managed_room(c, bytes);
	if (r == CUDA_SUCCESS) {
		*pointer = next_address;
		next_address += (bytes + PAGE - 1) / PAGE * PAGE;
	}
	api_unlock();
	return r;
}

API CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	CUcontext c;
	struct view v = { 0 };
	api_lock();
	struct block **at = &blocks;
	while (*at && (*at)->at != pointer)
		at = &(*at)->next;
	CUresult r = context_current(&c);
	if (r == CUDA_SUCCESS && pointer && !*at)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && pointer) {
		struct block *b = *at;
		r = view_open(&v, __func__, b->owner->device, 1);
		if (r == CUDA_SUCCESS)
			r = context_health(b->owner, &v);
		if (r == CUDA_SUCCESS && (r = book(&v, b->bytes, 0)) == CUDA_SUCCESS) {
			*at = b->next;
			free(b);
		}
		view_close(&v, r == CUDA_SUCCESS);
	}
	api_unlock();
	return r;
}

uint64_t free_all(CUcontext c)
{
	uint64_t bytes = 0;
	for (struct block **at = &blocks; *at;) {
		struct block *b = *at;
		if (b->owner != c) {
			at = &b->next;
			continue;
		}
		bytes += b->bytes;
		*at = b->next;
		free(b);
	}
	return bytes;
}

/* Under a limit of MPS free is what the limit leaves, but total stays the whole GPU: programs that take a share of the
 * total take too much (MPS documentation; NVIDIA/k8s-device-plugin issue 764). A limit of the cgroup is the total. */
API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext c;
	struct view v = { 0 };
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	CUresult r = context_current(&c);
	if (r == CUDA_SUCCESS && (r = view_open(&v, __func__, c->device, 1)) == CUDA_SUCCESS)
		r = context_health(c, &v);
	if (r == CUDA_SUCCESS) {
		*free_bytes = room(&v, own_process(&v));
		*total = view_memory(&v);
		uint64_t cgroup = v.profile ? SIM_UNSET : sim_cgroup_total(v.n, v.d.gpu, own_pid());
		*total = cgroup < *total ? cgroup : *total;
	}
	view_close(&v, 0);
	api_unlock();
	return r;
}

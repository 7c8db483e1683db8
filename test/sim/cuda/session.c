/* session.c: cuInit, and the way of every call to the state. */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct session session;
static pthread_mutex_t api = PTHREAD_MUTEX_INITIALIZER;
static int inherited; /* this is a child of a process that had called cuInit */

void api_lock(void) { pthread_mutex_lock(&api); }
void api_unlock(void) { pthread_mutex_unlock(&api); }
pthread_mutex_t *api_mutex(void) { return &api; }

/* CUDA does not survive fork: in the child every call, cuInit too, is NOT_INITIALIZED (CUDA C++ Programming Guide). */
static void in_child(void)
{
	api = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	inherited |= session.pid != 0;
	session.pid = 0;
	mps_forget();
}

static int planned(const char *call, uint32_t gpu)
{
	const struct sim_node *n = sim_read();
	int ret = n ? sim_fault_planned(n, call, gpu) : 0;
	if (n)
		sim_end();
	if (ret == 0 || ret == SIM_HANG)
		return 0;
	struct sim_node *w = sim_write();
	ret = w ? sim_fault(w, call, gpu) : 0;
	if (w)
		sim_end();
	return ret;
}

static int hangs(const char *call, uint32_t gpu)
{
	const struct sim_node *n = sim_read();
	int hang = n && ((gpu < n->gpu_count && n->gpu[gpu].hang) || sim_fault_planned(n, call, gpu) == SIM_HANG);
	if (n)
		sim_end();
	return hang;
}

/* A hanging GPU holds the caller, not the state. A planned failure answers as a CUDA result. */
static CUresult faults(const char *call, uint32_t gpu)
{
	while (hangs(call, gpu))
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	return planned(call, gpu);
}

static int enumerate(const struct sim_node *n, const struct mps *m)
{
	struct devices base = m->attached ? m->visible : all_devices(n);
	session.devices = select_devices(n, &base, getenv("CUDA_VISIBLE_DEVICES"));
	fold_mig(&session.devices);
	for (int i = 0; i < DEVICES; i++)
		session.limit[i] = SIM_UNSET;
	session.percentage = 10000;
	session.server = 0;
	if (!m->attached)
		return session.devices.count; /* no server, no limit: MPS fails open */
	for (int i = 0; i < session.devices.count; i++)
		for (int k = 0; k < m->visible.count; k++)
			if (memcmp(&session.devices.d[i], &m->visible.d[k], sizeof m->visible.d[k]) == 0)
				session.limit[i] = m->limit[k];
	apply_limits(n, &session.devices, getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), session.limit);
	session.percentage = m->fixed ? m->percentage : parse_percentage(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), m->percentage);
	session.server = m->server;
	return session.devices.count;
}

/* The nodes that the real library has open from cuInit on, where there are such: tests make them of other devices. */
static void open_nodes(void)
{
	static const char *const names[] = { "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		(void)!open(names[i], O_RDWR | O_CLOEXEC);
	for (int i = 0; i < session.devices.count; i++) {
		char node[32];
		snprintf(node, sizeof node, "/dev/nvidia%u", session.devices.d[i].gpu);
		(void)!open(node, O_RDWR | O_CLOEXEC);
	}
}

static CUresult initialise(void)
{
	static int watching;
	struct mps m = { 0 };
	CUresult r = faults("cuInit", SIM_NONE);
	if (r == CUDA_SUCCESS)
		r = mps_attach(&m);
	const struct sim_node *n = r == CUDA_SUCCESS ? sim_read() : NULL;
	if (r == CUDA_SUCCESS && (!n || n->driver_missing || enumerate(n, &m) == 0))
		r = CUDA_ERROR_NO_DEVICE; /* without a driver the 550 library says so, too */
	if (n)
		sim_end();
	if (r == CUDA_SUCCESS && !watching++)
		pthread_atfork(NULL, NULL, in_child);
	if (r == CUDA_SUCCESS) {
		session.pid = own_pid();
		open_nodes();
	} else if (m.attached)
		mps_detach();
	return r;
}

int own_pid(void)
{
	char text[32] = "";
	ssize_t n = readlink("/proc/self", text, sizeof text - 1);
	int pid = n > 0 ? atoi(text) : 0;
	return pid > 0 ? pid : getpid();
}

API CUresult cuInit(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (inherited)
		return CUDA_ERROR_NOT_INITIALIZED;
	api_lock();
	CUresult r = session.pid ? CUDA_SUCCESS : initialise();
	api_unlock();
	return r;
}

/* The real one answers before cuInit, and without a driver (run for real, 550). */
API CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	const struct sim_node *n = sim_read();
	*version = n ? (int)n->cuda : 0;
	if (n)
		sim_end();
	return CUDA_SUCCESS;
}

const struct sim_profile *view_locate(const struct sim_node *n, struct device d, const struct sim_ci **ci)
{
	const struct sim_gpu *g = &n->gpu[d.gpu];
	const struct sim_model *m = sim_model(g->model);
	for (int i = 0; d.gi != SIM_NONE && i < SIM_GIS; i++)
		for (int k = 0; g->gi[i].used && g->gi[i].id == d.gi && k < SIM_CIS; k++)
			if (g->gi[i].ci[k].used && g->gi[i].ci[k].id == d.ci) {
				*ci = &g->gi[i].ci[k];
				return m ? sim_profile(m, g->gi[i].profile) : NULL;
			}
	return NULL;
}

/* What CUDA answers of a GPU that is gone, or of an instance that was destroyed, is not documented; UNKNOWN is a guess. */
static CUresult look(struct view *v, CUdevice device)
{
	v->d = session.devices.d[device];
	v->ordinal = device;
	v->g = &v->n->gpu[v->d.gpu];
	v->m = sim_model(v->g->model);
	if (!v->m || v->g->lost)
		return CUDA_ERROR_UNKNOWN;
	if (v->d.gi == SIM_NONE)
		return CUDA_SUCCESS;
	v->profile = view_locate(v->n, v->d, &v->mig);
	return v->profile ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult view_open(struct view *v, const char *call, CUdevice device, int writing)
{
	*v = (struct view){ 0 };
	if (!session.pid)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (device < 0 || device >= session.devices.count)
		return CUDA_ERROR_INVALID_DEVICE;
	CUresult r = faults(call, session.devices.d[device].gpu);
	if (r != CUDA_SUCCESS)
		return r;
	v->n = writing ? (v->w = sim_write()) : sim_read();
	return v->n ? look(v, device) : CUDA_ERROR_UNKNOWN;
}

void view_close(struct view *v, int commit)
{
	if (v->n)
		commit ? sim_end() : sim_abort();
	v->n = NULL;
}

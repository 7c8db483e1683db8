/* internal.h: what the files of the simulated libcuda share. Everything but API is hidden: condor_gpu_discovery
 * exports variables that are named like functions of NVML. */
#ifndef GPUSLOT_SIM_CUDA_INTERNAL_H
#define GPUSLOT_SIM_CUDA_INTERNAL_H

#include <pthread.h>

#include "../nvml/models.h"
#include "../state/state.h"
#include "cuda.h"

#define API __attribute__((visibility("default")))

enum { DEVICES = SIM_GPUS };

/* The driver hands out whole pages of 2 MiB. */
#define PAGE (2ull << 20)

/* A CUDA device: a whole GPU, or the compute instance of a MIG device (ids; SIM_NONE without MIG). */
struct device { uint32_t gpu, gi, ci; };

struct devices {
	int count;
	int fixed;                  /* the list of a control daemon: no other instance of its GPUs is there */
	struct device d[DEVICES];
};

/* MPS as the process met it at cuInit. */
struct mps {
	int attached;
	int32_t server;             /* pid */
	struct devices visible;     /* the devices of the control daemon, in its order */
	uint64_t limit[DEVICES];    /* bytes, by place in visible; SIM_UNSET: none */
	uint32_t percentage;        /* active thread percentage x 100 */
	int fixed;                  /* v3: a namespace's percentage overrides the client's (MPS documentation, R615) */
};

/* What cuInit found; one for each process. The lists are fixed from then on, as in the real library. */
struct session {
	pid_t pid;                  /* 0: no cuInit yet */
	struct devices devices;     /* by ordinal */
	uint64_t limit[DEVICES];    /* bytes, by ordinal; SIM_UNSET: none */
	uint32_t percentage;        /* x 100 */
	int32_t server;             /* 0: no MPS */
};
extern struct session session;

/* This process as the node's own PID namespace, in which /proc was mounted, counts it: a container has another count, and
 * the state's processes must be found by everybody. */
int own_pid(void);

/* attach.c: CUDA_MPS_SM_PARTITION. 1 and *p where the daemon has static partitioning and the process names a partition of
 * that GPU, 0 without static partitioning, -1: it has to name one. *p lives as long as the state is held. */
int client_partition(const struct sim_node *n, uint32_t gpu, const struct sim_partition **p);

/* api_lock holds one thread of the process in the library; waiting calls give it back. */
void api_lock(void);
void api_unlock(void);
pthread_mutex_t *api_mutex(void); /* for the conditions of contexts */

/* visible.c, limit.c: pure readers of the environment's values. */
struct devices all_devices(const struct sim_node *n);
struct devices select_devices(const struct sim_node *n, const struct devices *from, const char *list);
void fold_mig(struct devices *d);
uint64_t parse_limit(const char *value);
void apply_limits(const struct sim_node *n, const struct devices *d, const char *list, uint64_t *limit);
uint32_t parse_percentage(const char *value, uint32_t most);

/* attach.c: CUDA_SUCCESS and m->attached 0: no MPS here. */
CUresult mps_attach(struct mps *m);
void mps_detach(void);
void mps_forget(void); /* in a child */
void client_device(struct sim_node *n, const struct device *d); /* MPS: this is where the process has its contexts */
CUresult client_error(const struct sim_node *n); /* what MPS holds ready for this process */

/* A device as the state has it now. */
struct view {
	const struct sim_node *n;
	struct sim_node *w;         /* NULL unless entered for writing; the same memory as n */
	const struct sim_gpu *g;
	const struct sim_model *m;
	const struct sim_profile *profile; /* NULL: a whole GPU */
	const struct sim_ci *mig;          /* NULL: a whole GPU */
	struct device d;
	int ordinal;
};
/* view_open checks cuInit, the ordinal, planned failures and the GPU, and locks the state; call names the API call. */
CUresult view_open(struct view *v, const char *call, CUdevice device, int writing);
void view_close(struct view *v, int commit);
const struct sim_profile *view_locate(const struct sim_node *n, struct device d, const struct sim_ci **ci);
uint64_t view_memory(const struct view *v);          /* bytes that CUDA shows as total */
uint32_t view_multiprocessors(const struct view *v); /* of the device */
uint32_t view_mode(const struct view *v);            /* CU_COMPUTEMODE_… */
uint32_t view_allowed(const struct view *v);         /* those that the active thread percentage leaves */

enum { KERNELS = 64 };
struct kernel { CUresult ends_in; uint32_t xid, percent, milliseconds; };

struct CUctx_st {
	CUcontext next;
	CUdevice device;
	int primary, references;
	int dead;                   /* destroyed; its engine ends and frees it */
	CUresult error;             /* sticky: a context that met a fault answers nothing else any more */
	uint64_t ecc;               /* uncorrectable errors of the GPU when the context came */
	pthread_cond_t changed;     /* with the API lock */
	struct kernel queue[KERNELS];
	int first, count;           /* kernels that wait or run */
	int engine;                 /* its thread was started */
	int running;                /* a kernel of the queue has begun */
};

CUresult context_current(CUcontext *c);  /* INVALID_CONTEXT, or the sticky error (then *c is set, too) */
CUresult context_health(CUcontext c, const struct view *v);
uint64_t free_all(CUcontext c);          /* forgets its allocations: their bytes */
uint64_t context_bytes(const struct view *v);
struct sim_process *own_process(struct view *v);

#endif

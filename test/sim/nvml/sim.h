/* sim.h: what every file of the simulated NVML stands on: handles, locking, privileges.
 *
 *	nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
 *	{
 *		struct sim_call c;
 *		nvmlReturn_t r = sim_enter(&c, __func__, device, SIM_WHOLE);
 *		if (r == NVML_SUCCESS && !power)
 *			r = NVML_ERROR_INVALID_ARGUMENT;
 *		if (r == NVML_SUCCESS)
 *			*power = sim_power(c.n, c.gpu);
 *		return sim_leave(&c, r);
 *	}
 */
#ifndef GPUSLOT_SIM_H
#define GPUSLOT_SIM_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <stddef.h>

#include "../state/state.h"
#include "models.h"

/* How a call enters. */
enum {
	SIM_ANY = 0,      /* whole GPUs and MIG devices */
	SIM_WHOLE = 1,    /* NOT_SUPPORTED on a MIG device */
	SIM_PARENT = 2,   /* INVALID_ARGUMENT on a MIG device: the calls that manage MIG */
	SIM_ROOT = 4,     /* NO_PERMISSION unless root */
	SIM_WRITE = 8,    /* c.w and c.wg may be changed; committed only if sim_leave gets NVML_SUCCESS */
	SIM_NOT_MIG = 16, /* NOT_SUPPORTED on a GPU whose MIG mode is on, and on its MIG devices */
	SIM_MIG = 32,     /* NOT_SUPPORTED on a GPU whose MIG mode is off */
};

struct sim_call {
	const struct sim_node *n;
	const struct sim_gpu *g;    /* of n */
	struct sim_node *w;         /* NULL without SIM_WRITE; the same memory as n */
	struct sim_gpu *wg;
	const struct sim_model *m;
	uint32_t gpu, gi, ci;       /* gi, ci: SIM_NONE for a whole GPU */
};

/* sim_enter checks that NVML is initialised, the handle, its GPU (hanging, lost), the planned failures and the
 * privileges, and locks the state. sim_leave unlocks it; call it always, with the result of sim_enter too. */
nvmlReturn_t sim_enter(struct sim_call *c, const char *call, nvmlDevice_t device, unsigned how);
/* The same for calls that name no device; how: SIM_ROOT, SIM_WRITE. */
nvmlReturn_t sim_enter_system(struct sim_call *c, const char *call, unsigned how);
nvmlReturn_t sim_leave(struct sim_call *c, nvmlReturn_t r);

/* Handles are places in static tables: foreign pointers are told apart, and no handle is ever freed. Instances have
 * their place by id, so a handle of a dead instance is known as dead until one with that id lives again. */
enum { SIM_GI_IDS = 16 }; /* 0 full, 1-2 halves, 3-6 quarters, 7-14 eighths */
nvmlDevice_t sim_handle(uint32_t gpu);
nvmlDevice_t sim_mig_handle(uint32_t gpu, uint32_t gi, uint32_t ci);
nvmlGpuInstance_t sim_gi_handle(uint32_t gpu, uint32_t gi);
nvmlComputeInstance_t sim_ci_handle(uint32_t gpu, uint32_t gi, uint32_t ci);
/* sim_locate says what a handle means, alive or not. 0: not one of ours. */
int sim_locate(const void *handle, uint32_t *gpu, uint32_t *gi, uint32_t *ci);
int sim_is_mig_handle(const void *handle);

/* faults.c: a hanging GPU or call holds its caller until it is let go; a planned failure answers in its place. */
void sim_hold(const char *call, uint32_t gpu);
nvmlReturn_t sim_planned(const char *call, uint32_t gpu);

int sim_initialised(void);
int sim_root(void); /* by effective user id */

/* Instances by id; NULL: not alive. */
struct sim_gi *sim_gi(const struct sim_gpu *g, uint32_t id);
struct sim_ci *sim_ci(const struct sim_gi *gi, uint32_t id);
int sim_gi_busy(const struct sim_node *n, uint32_t gpu, uint32_t gi, uint32_t ci); /* ci SIM_NONE: any */
/* sim_ci_name spells a compute instance profile: "MIG 1c.3g.20gb", "MIG 3g.20gb" for the whole GPU instance. */
void sim_ci_name(char *room, size_t length, const struct sim_model *m, const struct sim_gi *gi, uint32_t profile);

/* sim_list answers NVML's size question: *count is the room in, the number out. room NULL or too small:
 * INSUFFICIENT_SIZE, and 0 entries are a SUCCESS. */
nvmlReturn_t sim_list(const void *room, unsigned int *count, unsigned int have);
nvmlReturn_t sim_string(char *room, unsigned int length, const char *s); /* INSUFFICIENT_SIZE, INVALID_ARGUMENT */

#endif

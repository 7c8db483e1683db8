/* mig.h: the rules of MIG that several files need. */
#ifndef GPUSLOT_SIM_MIG_H
#define GPUSLOT_SIM_MIG_H

#include "sim.h"

/* sim_offered: the driver of this node knows the profile. */
int sim_offered(const struct sim_node *n, const struct sim_profile *p);
/* sim_fits: SUCCESS, or INSUFFICIENT_RESOURCES when an instance of that profile cannot start there now. */
nvmlReturn_t sim_fits(const struct sim_call *c, const struct sim_profile *p, uint32_t start);
/* sim_capacity is how many more instances of the profile fit. */
uint32_t sim_capacity(const struct sim_call *c, const struct sim_profile *p);

/* What a compute instance profile is inside a GPU instance; 0: there is no such profile. */
struct sim_ci_profile { uint32_t slices, sm, max; };
int sim_ci_profile(struct sim_ci_profile *out, const struct sim_model *m, const struct sim_gi *gi, uint32_t profile);
/* sim_ci_start: bit i: the profile may start at slice i. */
uint32_t sim_ci_starts(const struct sim_model *m, const struct sim_gi *gi, uint32_t profile);

/* Entering by the handle of an instance: root, MIG on, alive. c->gi and c->ci say which. */
nvmlReturn_t sim_enter_gi(struct sim_call *c, const char *call, nvmlGpuInstance_t handle, unsigned how, struct sim_gi **gi);
nvmlReturn_t sim_enter_ci(struct sim_call *c, const char *call, nvmlComputeInstance_t handle, unsigned how, struct sim_gi **gi,
	struct sim_ci **ci);

#endif

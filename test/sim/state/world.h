/* world.h: what the files of the state ask of each other. */
#ifndef GPUSLOT_SIM_WORLD_H
#define GPUSLOT_SIM_WORLD_H

#include "state.h"

/* The dead leave the state before anybody looks at it (world.c for state.c). */
int world_has_dead(const struct sim_node *n);
void world_bury(struct sim_node *n);

/* What stays of a process that is about to leave (meter.c for world.c). */
void world_close_account(struct sim_node *n, const struct sim_process *p);

/* Clients of MPS whose process is gone; before their processes are buried (mps.c for world.c). */
void world_bury_clients(struct sim_node *n);

#endif

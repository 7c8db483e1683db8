/* world.h: what state.c asks of world.c: the dead leave the state before anybody looks at it. */
#ifndef GPUSLOT_SIM_WORLD_H
#define GPUSLOT_SIM_WORLD_H

#include "state.h"

int world_has_dead(const struct sim_node *n);
void world_bury(struct sim_node *n);

#endif

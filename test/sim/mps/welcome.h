/* welcome.h: what a simulated server tells a new client. Not NVIDIA's protocol: both ends are ours. */
#ifndef GPUSLOT_SIM_MPS_WELCOME_H
#define GPUSLOT_SIM_MPS_WELCOME_H

#include "client.h"

struct server_welcome { int32_t result; struct mps_link link; };

#endif

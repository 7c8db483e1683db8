/* client.h: a process becomes a client of MPS, for the simulated libcuda.
 *
 * One call asks the control daemon of a pipe directory (the simulated one or NVIDIA's own) for its server, and the
 * server for its limits. The server then keeps the process's sim_mps_client in the state until the process is gone:
 * whatever happens to it shows there, in `error`. The processes' memory and load are libcuda's to write. */
#ifndef GPUSLOT_SIM_MPS_CLIENT_H
#define GPUSLOT_SIM_MPS_CLIENT_H

#include "../state/state.h"

/* CUDA's numbers (cuda.h). */
enum mps_result {
	MPS_OK = 0,
	MPS_NO_DEVICE = 100,
	MPS_NOT_PERMITTED = 800,
	MPS_CONNECTION_FAILED = 805,  /* there is a daemon, but no server came up */
	MPS_RPC_FAILURE = 806,        /* the server went away */
	MPS_SERVER_NOT_READY = 807,   /* it is in FAULT, or on its way out */
	MPS_MAX_CLIENTS = 808,
	MPS_CLIENT_TERMINATED = 810,
	MPS_ABSENT = -1,              /* no process listens there: plain CUDA, no limits */
};

struct mps_device { uint32_t gpu, gi, ci; };

struct mps_link {
	int fd;                       /* to the server; closed on exec, the server sees it close */
	int32_t server;               /* pid */
	uint32_t percentage;          /* active thread percentage x 100 */
	uint32_t fixed;               /* v3: it is a namespace's, whatever the client wishes */
	uint32_t priority;
	uint32_t devices;             /* the server's, in its order */
	struct mps_device device[SIM_GPUS];
	uint64_t limit[SIM_GPUS];     /* bytes, by that order; SIM_UNSET: none */
};

/* The pipe directory of this process: $CUDA_MPS_PIPE_DIRECTORY, or the default. */
const char *mps_pipe_directory(void);

/* mps_open blocks as the real one does: while the daemon does not answer, while the server starts, while another
 * account has the server. MPS_OK, MPS_ABSENT or a CUDA error. */
int mps_open(const char *pipe, struct mps_link *link);

/* mps_close gives the place back while the process lives on; its end does the same. */
void mps_close(struct mps_link *link);

#endif

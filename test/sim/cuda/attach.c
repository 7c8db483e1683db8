/* attach.c: CUDA_MPS_PIPE_DIRECTORY. */
#include "internal.h"

#include <unistd.h>

CUresult mps_attach(struct mps *m)
{
	m->attached = 0;
	return CUDA_SUCCESS;
}

/* A server that is gone breaks its clients at once (SGL PR 2101); which code they get is not documented. */
CUresult client_error(const struct sim_node *n, const struct device *d)
{
	int server = 0;
	for (int i = 0; i < SIM_SERVERS; i++)
		server |= n->mps_server[i].used && n->mps_server[i].pid == session.server;
	if (!server)
		return CUDA_ERROR_MPS_RPC_FAILURE;
	for (int i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->pid == getpid() && c->server == session.server && c->error)
			return c->error;
	}
	(void)d;
	return CUDA_SUCCESS;
}

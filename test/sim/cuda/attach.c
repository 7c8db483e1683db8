/* attach.c: MPS. What the socket says is in mps/client.h; here is what CUDA makes of it. */
#include "internal.h"

#include <unistd.h>

CUresult mps_attach(struct mps *m)
{
	m->attached = 0;
	return CUDA_SUCCESS;
}

void mps_detach(void) {}
void mps_forget(void) {}

/* A server that is gone breaks its clients at once (SGL PR 2101); which code they get is not documented. */
CUresult client_error(const struct sim_node *n)
{
	int alive = 0;
	for (int i = 0; i < SIM_SERVERS; i++)
		alive |= n->mps_server[i].used && n->mps_server[i].pid == session.server;
	for (int i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->pid == getpid() && c->server == session.server && c->error)
			return c->error;
	}
	return alive ? CUDA_SUCCESS : CUDA_ERROR_MPS_RPC_FAILURE;
}

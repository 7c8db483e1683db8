/* attach.c: MPS. What the socket says is in mps/client.h; here is what CUDA makes of it. */
#include "internal.h"

#include <unistd.h>

#include "../mps/client.h"

static struct mps_link channel = { .fd = -1 };

CUresult mps_attach(struct mps *m)
{
	int r = mps_open(mps_pipe_directory(), &channel);
	m->attached = r == MPS_OK;
	if (r == MPS_ABSENT)
		return CUDA_SUCCESS; /* MPS fails open */
	if (r != MPS_OK)
		return r;
	m->server = channel.server;
	m->percentage = channel.percentage;
	m->visible = (struct devices){ .count = (int)channel.devices, .fixed = 1 };
	for (uint32_t i = 0; i < channel.devices; i++) {
		m->visible.d[i] = (struct device){ channel.device[i].gpu, channel.device[i].gi, channel.device[i].ci };
		m->limit[i] = channel.limit[i];
	}
	return CUDA_SUCCESS;
}

void mps_detach(void) { mps_close(&channel); }

/* A child must not keep the parent's place at the server. */
void mps_forget(void)
{
	if (channel.fd >= 0)
		close(channel.fd);
	channel.fd = -1;
}

void client_device(struct sim_node *n, const struct device *d)
{
	for (int i = 0; i < SIM_CLIENTS; i++) {
		struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->pid == getpid() && c->server == session.server) {
			c->gpu = d->gpu;
			c->gi = d->gi;
			c->ci = d->ci;
		}
	}
}

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

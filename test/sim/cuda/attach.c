/* attach.c: MPS. What the socket says is in mps/client.h; here is what CUDA makes of it. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../mps/client.h"

static struct mps_link channel = { .fd = -1 };

/* A process in a PID namespace of its own with the node's /proc is another one for getpid than for /proc. On an H200 with
 * 580.159.04 cuInit of such a client gave 304, and the control daemon heard nothing of it (docs/hardware, T3). */
static int torn(void)
{
	char path[256];
	snprintf(path, sizeof path, "%s/control", mps_pipe_directory());
	if (getpid() == own_pid() || access(path, F_OK) != 0)
		return 0;
	const struct sim_node *n = sim_read();
	int measured = n && n->branch >= SIM_MEASURED;
	if (n)
		sim_end();
	return measured;
}

CUresult mps_attach(struct mps *m)
{
	if (torn())
		return CUDA_ERROR_OPERATING_SYSTEM;
	int r = mps_open(mps_pipe_directory(), &channel);
	m->attached = r == MPS_OK;
	if (r == MPS_ABSENT)
		return CUDA_SUCCESS; /* MPS fails open */
	if (r != MPS_OK)
		return r;
	m->server = channel.server;
	m->percentage = channel.percentage;
	m->fixed = (int)channel.fixed;
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

/* MPS documentation, R590, "Static SM partitioning": <GPU uuid>/<partition id>, mandatory for every client. */
int client_partition(const struct sim_node *n, uint32_t gpu, const struct sim_partition **p)
{
	const struct sim_mps_daemon *d = session.server ? sim_mps_daemon_of(n, session.server) : NULL;
	const char *name = getenv("CUDA_MPS_SM_PARTITION"), *id = name ? strchr(name, '/') : NULL;
	if (!d || !d->static_partitioning)
		return 0;
	for (int i = 0; id && i < SIM_PARTITIONS; i++) {
		*p = &n->partition[i];
		if ((*p)->used && (*p)->daemon == d->pid && (*p)->gpu == gpu && strcmp((*p)->id, id + 1) == 0 &&
			strncmp(n->gpu[gpu].uuid, name, (size_t)(id - name)) == 0)
			return 1;
	}
	return -1;
}

void client_device(struct sim_node *n, const struct device *d)
{
	const struct sim_partition *p = NULL;
	int partition = client_partition(n, d->gpu, &p) == 1 ? (int)(p - n->partition) + 1 : 0;
	for (int i = 0; i < SIM_CLIENTS; i++) {
		struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->pid == own_pid() && c->server == session.server) {
			c->gpu = d->gpu;
			c->gi = d->gi;
			c->ci = d->ci;
			c->partition = (uint32_t)partition;
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
		if (c->used && c->pid == own_pid() && c->server == session.server && c->error)
			return c->error;
	}
	return alive ? CUDA_SUCCESS : CUDA_ERROR_MPS_RPC_FAILURE;
}

/* mps.c: what the clients of one MPS server do to each other.
 *
 * Evidence: MPS documentation, "Volta MPS": a fatal fault reaches every client of the GPU, the server takes no new
 * one (FAULT) until all of them are gone, then it is ACTIVE again; a client killed with work in flight leaves the
 * others in an undefined state. Here that is always the bad case, so that who kills first is seen to be wrong. An H200
 * with 580.159.04 did all of this (docs/hardware, T8, T10). */
#include "world.h"

#include <string.h>

enum { ILLEGAL_ADDRESS = 700, ASSERT = 710, LAUNCH_FAILED = 719, CLIENT_TERMINATED = 810 }; /* CUDA errors */
enum { XID = 8, PAGE_FAULT = 31 };         /* nvmlEventTypeXidCriticalError; the Xid of an illegal address */

static struct sim_mps_server *server_of(struct sim_node *n, int32_t pid)
{
	for (int i = 0; i < SIM_SERVERS; i++)
		if (n->mps_server[i].used && n->mps_server[i].pid == pid)
			return &n->mps_server[i];
	return NULL;
}

const struct sim_mps_daemon *sim_mps_daemon_of(const struct sim_node *n, int32_t server)
{
	int32_t daemon = 0;
	for (int i = 0; i < SIM_SERVERS; i++)
		if (n->mps_server[i].used && n->mps_server[i].pid == server)
			daemon = n->mps_server[i].daemon;
	for (int i = 0; daemon && i < SIM_DAEMONS; i++)
		if (n->mps_daemon[i].used && n->mps_daemon[i].pid == daemon)
			return &n->mps_daemon[i];
	return NULL;
}

/* R610: between static partitions a fault that the multiprocessors raise stays with its client (MPS documentation). */
static int isolated(const struct sim_node *n, int32_t server)
{
	const struct sim_mps_daemon *d = sim_mps_daemon_of(n, server);
	return n->branch >= 610 && d && d->static_partitioning;
}

static const struct sim_process *busy_process(const struct sim_node *n, const struct sim_mps_client *c)
{
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (p->used && p->pid == c->pid && p->start == c->start && p->kind == SIM_MPS_CLIENT && p->load)
			return p;
	}
	return NULL;
}

static void spread(struct sim_node *n, int32_t server, int32_t culprit, uint32_t gpu, int32_t error)
{
	struct sim_mps_server *s = server_of(n, server);
	if (!s)
		return;
	s->state = SIM_SERVER_FAULT;
	s->fault_gpu = gpu;
	s->culprit = culprit;
	for (int i = 0; i < SIM_CLIENTS; i++) {
		struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->server == server && c->gpu == gpu && !c->error)
			c->error = error;
	}
}

/* On an H200 with 580.159.04 an assertion ends its own client alone, and the server stays ACTIVE (docs/hardware, T8). */
static int contained(const struct sim_node *n, int32_t error) { return n->branch >= SIM_MEASURED && error == ASSERT; }

/* A culprit's own context has the error in any case. */
void sim_mps_fault(struct sim_node *n, int32_t server, int32_t culprit, uint32_t gpu, int32_t error)
{
	if (!culprit || !(isolated(n, server) || contained(n, error)))
		spread(n, server, culprit, gpu, error);
}

/* What a client killed with work in flight does to the others. On an H200 with 580.159.04 the server's part of its work
 * met a page fault: Xid 31, and 700 for all (docs/hardware, T10, N6). Before, the code is inferred. */
static void break_off(struct sim_node *n, const struct sim_mps_client *c, const struct sim_process *p)
{
	int measured = n->branch >= SIM_MEASURED;
	if (measured) {
		sim_event(n, p->gpu, p->gi, p->ci, XID, PAGE_FAULT);
		n->gpu[p->gpu].last_xid = PAGE_FAULT;
	}
	spread(n, c->server, c->pid, p->gpu, measured ? ILLEGAL_ADDRESS : LAUNCH_FAILED);
}

static int affected(const struct sim_node *n, int32_t server)
{
	for (int i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && c->server == server && c->error && c->error != CLIENT_TERMINATED)
			return 1;
	}
	return 0;
}

void sim_mps_recover(struct sim_node *n)
{
	for (int i = 0; i < SIM_SERVERS; i++) {
		struct sim_mps_server *s = &n->mps_server[i];
		if (s->used && s->state == SIM_SERVER_FAULT && !affected(n, s->pid)) {
			s->state = SIM_SERVER_ACTIVE;
			s->fault_gpu = SIM_NONE;
		}
	}
}

/* terminate_client has taken the work of a terminated one away: its end hurts nobody. A killed process closes its
 * sockets before /proc shows it dead, so who leaves with work in flight counts as killed. */
void sim_mps_leave(struct sim_node *n, struct sim_mps_client *client)
{
	struct sim_mps_client c = *client;
	const struct sim_process *p = c.error ? NULL : busy_process(n, &c);
	memset(client, 0, sizeof *client);
	if (p)
		break_off(n, &c, p);
}

int sim_mps_terminate(struct sim_node *n, int32_t server, int32_t client)
{
	int found = 0;
	for (int i = 0; i < SIM_CLIENTS; i++) {
		struct sim_mps_client *c = &n->mps_client[i];
		if (!c->used || c->pid != client || c->server != server)
			continue;
		found = 1;
		if (!c->error)
			c->error = CLIENT_TERMINATED;
	}
	if (found)
		sim_settle(n);
	for (int i = 0; found && i < SIM_PROCESSES; i++) {
		struct sim_process *p = &n->process[i];
		if (!p->used || p->pid != client || p->kind != SIM_MPS_CLIENT)
			continue;
		p->load = p->memory_load = 0;
		sim_sample(n, p->gpu);
	}
	return found;
}

void world_bury_clients(struct sim_node *n)
{
	for (int i = 0; i < SIM_CLIENTS; i++) {
		struct sim_mps_client *c = &n->mps_client[i];
		if (c->used && sim_start_time(c->pid) != c->start)
			sim_mps_leave(n, c);
	}
	sim_mps_recover(n);
}

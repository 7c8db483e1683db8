/* simguest: a bare client of MPS, for the tests of servers: what libcuda does there, without CUDA.
 *
 *	simguest [PIPE-DIRECTORY]     attach, say how, then take one word a line until stdin ends:
 *	  busy, idle    work in flight or none        fault    a fatal fault of its own
 *	  error         the error it holds            close    give the place back, live on
 *
 * The first line is "attached SERVER PERCENTAGE PRIORITY LIMIT…" (bytes, - for none), "absent" or "error N". */
#include "../wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../client.h"

enum { ILLEGAL_ADDRESS = 700 };

static struct mps_link hub;

static int load(uint32_t percent)
{
	struct sim_node *n = sim_write();
	if (!n)
		return -1;
	const struct mps_device *d = &hub.device[0];
	struct sim_process *p = sim_find_process(n, getpid(), d->gpu, d->gi, d->ci);
	if (!p && (p = sim_add_process(n, getpid(), SIM_MPS_CLIENT, d->gpu, d->gi, d->ci)))
		p->server = hub.server;
	if (p) {
		sim_settle(n);
		p->load = percent;
		sim_sample(n, d->gpu);
	}
	sim_end();
	return p ? 0 : -1;
}

static int fault(void)
{
	struct sim_node *n = sim_write();
	if (!n)
		return -1;
	sim_mps_fault(n, hub.server, getpid(), hub.device[0].gpu, ILLEGAL_ADDRESS);
	sim_end();
	return 0;
}

static int held(void)
{
	int error = 0, server = 0;
	const struct sim_node *n = sim_read();
	for (int i = 0; n && i < SIM_SERVERS; i++)
		server |= n->mps_server[i].used && n->mps_server[i].pid == hub.server;
	for (int i = 0; n && i < SIM_CLIENTS; i++)
		if (n->mps_client[i].used && n->mps_client[i].pid == getpid())
			error = n->mps_client[i].error;
	if (n)
		sim_end();
	return server ? error : MPS_RPC_FAILURE;
}

static int obey(const char *word)
{
	if (strcmp(word, "busy") == 0)
		return load(50);
	if (strcmp(word, "idle") == 0)
		return load(0);
	if (strcmp(word, "fault") == 0)
		return fault();
	if (strcmp(word, "close") == 0)
		return mps_close(&hub), 0;
	return strcmp(word, "error") == 0 ? held() : -1;
}

static void greet(void)
{
	printf("attached %d %u.%02u %u", hub.server, hub.percentage / 100, hub.percentage % 100, hub.priority);
	for (uint32_t i = 0; i < hub.devices; i++) {
		if (hub.limit[i] == SIM_UNSET)
			printf(" -");
		else
			printf(" %" PRIu64, hub.limit[i]);
	}
	puts("");
}

int main(int argc, char **argv)
{
	char word[16];
	setvbuf(stdout, NULL, _IOLBF, 0);
	int result = mps_open(argc > 1 ? argv[1] : mps_pipe_directory(), &hub);
	if (result == MPS_OK)
		greet();
	else if (result == MPS_ABSENT)
		puts("absent");
	else
		printf("error %d\n", result);
	while (result == MPS_OK && scanf("%15s", word) == 1)
		printf("%d\n", obey(word));
	return result == MPS_OK ? 0 : 1;
}

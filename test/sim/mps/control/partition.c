/* partition.c: the daemon's devices; static partitions of their multiprocessors, and device_query (R590).
 *
 * Of partitions nothing was measured. The commands are those of the MPS documentation, release 590 and later: Ampere and newer,
 * chunks of 8 multiprocessors from Hopper on and of 4 before, refused while the device has clients, no partition removed
 * in use. The replies are published scripts' where they read one; the others are inferred. */
#include "control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../cuda/internal.h"

enum { AMPERE = 8, HOPPER = 9 };

static uint32_t chunk(const struct sim_gpu *g)
{
	const struct sim_model *m = sim_model(g->model);
	return !m || m->cc_major < AMPERE ? 0 : m->cc_major < HOPPER ? 4 : 8;
}

static uint32_t chunks(const struct sim_gpu *g) { return chunk(g) ? sim_model(g->model)->sm / chunk(g) : 0; }

/* A device by the beginning of its UUID, if only one has it. */
static int device_named(const struct sim_node *n, const struct devices *all, const char *name)
{
	int found = -1;
	for (int i = 0; *name && i < all->count; i++)
		if (strncmp(n->gpu[all->d[i].gpu].uuid, name, strlen(name)) == 0) {
			if (found >= 0)
				return -1;
			found = (int)all->d[i].gpu;
		}
	return found;
}

static struct devices own_devices(const struct sim_node *n)
{
	struct devices all = all_devices(n);
	return select_devices(n, &all, getenv("CUDA_VISIBLE_DEVICES"));
}

/* Run for real with 580 on an H200: such a daemon ends at once and says nothing. Without a driver it lives. */
int sees_no_device(void)
{
	const struct sim_node *n = sim_read();
	if (!n)
		return 0;
	int none = !n->driver_missing && own_devices(n).count == 0;
	sim_end();
	return none;
}

uint64_t default_limit(const struct daemon *d, int device)
{
	uint64_t limit = d->limit[device];
	const struct sim_node *n = sim_read();
	struct devices own = n ? own_devices(n) : (struct devices){ 0 };
	for (int i = 0; i < WIRE_DEVICES && device < own.count; i++)
		if (d->by_uuid[i].bytes && strcmp(d->by_uuid[i].uuid, n->gpu[own.d[device].gpu].uuid) == 0 &&
			(!limit || d->by_uuid[i].bytes < limit))
			limit = d->by_uuid[i].bytes;
	if (n)
		sim_end();
	return limit;
}

static int mine(const struct sim_partition *p, uint32_t gpu) { return p->used && p->daemon == getpid() && p->gpu == gpu; }

static uint64_t taken(const struct sim_node *n, uint32_t gpu)
{
	uint64_t mask = 0;
	for (int i = 0; i < SIM_PARTITIONS; i++)
		if (mine(&n->partition[i], gpu))
			mask |= ((1ull << n->partition[i].chunks) - 1) << n->partition[i].first;
	return mask;
}

/* partition 0: any client of the device */
static int clients(const struct sim_node *n, uint32_t gpu, uint32_t partition)
{
	int count = 0;
	for (int i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &n->mps_client[i];
		const struct sim_mps_daemon *d = c->used ? sim_mps_daemon_of(n, c->server) : NULL;
		count += d && d->pid == getpid() && c->gpu == gpu && (!partition || c->partition == partition);
	}
	return count;
}

/* Seen: Dx4AAA…, 36 characters; what it encodes is not published. Here the mask of the chunks in base64. */
static void encode(uint64_t mask, char id[40])
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	for (int i = 0; i < 36; i++)
		id[i] = digits[i < 11 ? mask >> 6 * i & 63 : 0];
	id[36] = 0;
}

static void dead_ones(struct sim_node *n)
{
	for (int i = 0; i < SIM_PARTITIONS; i++) {
		int alive = 0;
		for (int k = 0; k < SIM_DAEMONS; k++)
			alive |= n->mps_daemon[k].used && n->mps_daemon[k].pid == n->partition[i].daemon;
		if (!alive)
			n->partition[i].used = 0;
	}
}

static struct sim_partition *carve(struct sim_node *n, uint32_t gpu, uint32_t count)
{
	struct sim_partition *p = NULL;
	uint64_t used = taken(n, gpu), mask = (1ull << count) - 1;
	dead_ones(n);
	for (int i = 0; i < SIM_PARTITIONS && !p; i++)
		p = n->partition[i].used ? NULL : &n->partition[i];
	for (uint32_t first = 0; p && count && first + count <= chunks(&n->gpu[gpu]); first++)
		if (!(used & mask << first)) {
			*p = (struct sim_partition){ .used = 1, .gpu = gpu, .daemon = getpid(), .first = first, .chunks = count,
				.sm = count * chunk(&n->gpu[gpu]) };
			encode(mask << first, p->id);
			return p;
		}
	return NULL;
}

static void add(struct daemon *d, const char *uuid, int count)
{
	struct sim_node *n = sim_write();
	struct devices all = n ? own_devices(n) : (struct devices){ 0 };
	int gpu = n ? device_named(n, &all, uuid) : -1;
	struct sim_partition *p = gpu >= 0 && count > 0 && count < 64 && !clients(n, (uint32_t)gpu, 0) ? carve(n, (uint32_t)gpu, (uint32_t)count) : NULL;
	if (p)
		reply(d, "Partition %s/%s created", n->gpu[gpu].uuid, p->id);
	else if (gpu < 0)
		reply(d, "Device %s not found", uuid);
	else
		reply(d, "Failed to fulfill the requested SM partition of %d chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", count);
	if (n)
		p ? sim_end() : sim_abort();
}

static void rm(struct daemon *d, const char *uuid, const char *id)
{
	struct sim_node *n = sim_write();
	struct devices all = n ? own_devices(n) : (struct devices){ 0 };
	int gpu = n ? device_named(n, &all, uuid) : -1, found = -1;
	for (int i = 0; gpu >= 0 && i < SIM_PARTITIONS; i++)
		if (mine(&n->partition[i], (uint32_t)gpu) && strcmp(n->partition[i].id, id) == 0)
			found = i;
	int busy = found >= 0 && clients(n, (uint32_t)gpu, (uint32_t)found + 1);
	if (found < 0)
		reply(d, "Partition %s/%s not found", uuid, id);
	else if (busy)
		reply(d, "Partition %s/%s is in use", n->gpu[gpu].uuid, id);
	else {
		reply(d, "Partition %s/%s removed", n->gpu[gpu].uuid, id);
		n->partition[found].used = 0;
	}
	if (n)
		sim_end();
}

void sm_partition(struct daemon *d, const char *args)
{
	char verb[8] = "", uuid[64] = "", what[64] = "";
	sscanf(args, "%7s %63s %63s", verb, uuid, what);
	if (!d->partitioning)
		reply(d, "Static partitioning is not enabled");
	else if (strcmp(verb, "add") == 0)
		add(d, uuid, (int)strtol(what, NULL, 10));
	else if (strcmp(verb, "rm") == 0)
		rm(d, uuid, strchr(what, '/') ? strchr(what, '/') + 1 : what);
	else
		reply(d, "Unknown command \"sm_partition %s\"", verb);
}

static void device_rows(struct daemon *d, const struct sim_node *n, uint32_t gpu)
{
	const struct sim_gpu *g = &n->gpu[gpu];
	uint32_t used = (uint32_t)__builtin_popcountll(taken(n, gpu)), size = chunk(g);
	say(d, "%-14.12s%-38s%-7u%-7u%-6u%-6u%s", g->uuid, "-", chunks(g) - used, used, sim_model(g->model)->sm - used * size, used * size, "-");
	for (int i = 0; i < SIM_PARTITIONS; i++)
		if (mine(&n->partition[i], gpu))
			say(d, "%-14.12s%-38s%-7s%-7u%-6s%-6u%s", g->uuid, n->partition[i].id, "-", n->partition[i].chunks, "-", n->partition[i].sm,
				clients(n, gpu, (uint32_t)i + 1) ? "Yes" : "No");
}

void lspart(struct daemon *d, const char *args)
{
	(void)args;
	const struct sim_node *n = sim_read();
	struct devices all = n ? own_devices(n) : (struct devices){ 0 };
	say(d, "%-14s%-38s%-7s%-7s%-6s%-6s%s", "GPU", "Partition", "free", "used", "free", "used", "clients");
	say(d, "%-14s%-38s%-7s%-7s%-6s%-6s", "", "", "chunk", "chunk", "SM", "SM");
	for (int i = 0; i < all.count; i++)
		if (chunk(&n->gpu[all.d[i].gpu]))
			device_rows(d, n, all.d[i].gpu);
	if (n)
		sim_end();
}

void device_query(struct daemon *d, const char *args)
{
	int csv = strstr(args, "--csv") != NULL;
	const char *form = csv ? "%d,%d,%04X:%02X:%02X.0,%s,%s,%u,%u,-" : "%-8d%-8d%04X:%02X:%02X.0  %-42s%-32s%-11u%-13u-";
	const struct sim_node *n = sim_read();
	struct devices all = n ? own_devices(n) : (struct devices){ 0 };
	if (csv)
		say(d, "Ordinal,Server,PCI ID,Device UUID,Name,Total SMs,Total Chunks,Attributes");
	else
		say(d, "%-8s%-8s%-14s%-42s%-32s%-11s%-13s%s", "Ordinal", "Server", "PCI ID", "Device UUID", "Name", "Total SMs", "Total Chunks", "Attributes");
	for (int i = 0; i < all.count; i++) {
		const struct sim_gpu *g = &n->gpu[all.d[i].gpu];
		say(d, form, i, (int)d->server.pid, g->pci_domain, g->pci_bus, g->pci_device, g->uuid, g->name, sim_model(g->model)->sm, chunks(g));
	}
	if (n)
		sim_end();
}

/* world.c: processes, events and planned failures in the state. Load and energy are in meter.c. */
#include "world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* /proc/PID/stat: the name is in brackets and may hold anything, so read from its last one. State Z or X is
 * gone: a zombie has no GPU memory, and a slow parent keeps it for seconds. But a process whose first thread alone
 * has ended (pthread_exit in main) is in state Z too, and keeps all that it has: field 20 counts its threads. */
uint64_t sim_start_time(pid_t pid)
{
	char path[32], b[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t len = read(fd, b, sizeof b - 1);
	close(fd);
	if (len <= 0)
		return 0;
	b[len] = 0;
	char *p = strrchr(b, ')');
	if (!p || p[1] != ' ' || p[2] == 'X')
		return 0;
	int zombie = p[2] == 'Z';
	for (int field = 2; field < 22 && p; field++) {
		p = strchr(p + 1, ' ');
		if (field == 19 && p && zombie && strtoul(p + 1, NULL, 10) <= 1)
			return 0;
	}
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

static int dead(uint32_t used, int32_t pid, uint64_t start) { return used && sim_start_time(pid) != start; }

/* seen says whether the loop over the processes has looked at this one. */
static int seen(const struct sim_node *n, int32_t pid, uint64_t start)
{
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (n->process[i].used && n->process[i].pid == pid && n->process[i].start == start)
			return 1;
	return 0;
}

/* GPUSLOT_SIM_LOOK_MS: a sample of gpuslotd is a hundred calls within milliseconds, of which one has to look. */
static int looked_lately(void)
{
	static uint64_t last;
	const char *pause = getenv("GPUSLOT_SIM_LOOK_MS");
	if (!pause)
		return 0;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	if (last && now - last < strtoull(pause, NULL, 10))
		return 1;
	last = now;
	return 0;
}

/* Looking is a file of /proc for each process, under the lock of the node, and a bench would book it on who it measures.
 * That sets GPUSLOT_SIM_TRUST and keeps its processes alive; events are then looked for each second only. */
int world_has_dead(const struct sim_node *n)
{
	if (getenv("GPUSLOT_SIM_TRUST") || looked_lately())
		return 0;
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (dead(n->process[i].used, n->process[i].pid, n->process[i].start))
			return 1;
	for (int i = 0; i < SIM_DAEMONS; i++)
		if (dead(n->mps_daemon[i].used, n->mps_daemon[i].pid, n->mps_daemon[i].start))
			return 1;
	for (int i = 0; i < SIM_SERVERS; i++)
		if (dead(n->mps_server[i].used, n->mps_server[i].pid, n->mps_server[i].start))
			return 1;
	for (int i = 0; i < SIM_CLIENTS; i++)
		if (n->mps_client[i].used && !seen(n, n->mps_client[i].pid, n->mps_client[i].start) &&
		    dead(1, n->mps_client[i].pid, n->mps_client[i].start))
			return 1;
	for (int i = 0; i < SIM_KEEPERS; i++)
		if (dead(n->keeper[i].used, n->keeper[i].pid, n->keeper[i].start))
			return 1;
	return 0;
}

int sim_add_keeper(struct sim_node *n, pid_t pid, pid_t of)
{
	uint64_t start = sim_start_time(pid), of_start = sim_start_time(of);
	for (int i = 0; i < SIM_KEEPERS && start && of_start; i++)
		if (!n->keeper[i].used) {
			n->keeper[i] = (struct sim_keeper){ .used = 1, .pid = pid, .start = start, .of = of, .of_start = of_start };
			return 0;
		}
	return -1;
}

/* One GPU is enough for a test. */
static void leave(struct sim_node *n, const struct sim_process *p)
{
	for (int i = 0; i < SIM_KEEPERS; i++) {
		struct sim_keeper *k = &n->keeper[i];
		if (k->used && k->of == p->pid && k->of_start == p->start && k->memory == 0) {
			k->gpu = p->gpu;
			k->memory = p->memory;
			return;
		}
	}
}

void world_bury(struct sim_node *n)
{
	world_bury_clients(n);
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (dead(n->process[i].used, n->process[i].pid, n->process[i].start)) {
			leave(n, &n->process[i]);
			sim_drop_process(n, &n->process[i]);
		}
	for (int i = 0; i < SIM_KEEPERS; i++)
		if (dead(n->keeper[i].used, n->keeper[i].pid, n->keeper[i].start))
			memset(&n->keeper[i], 0, sizeof n->keeper[i]);
	for (int i = 0; i < SIM_DAEMONS; i++)
		if (dead(n->mps_daemon[i].used, n->mps_daemon[i].pid, n->mps_daemon[i].start))
			memset(&n->mps_daemon[i], 0, sizeof n->mps_daemon[i]);
	for (int i = 0; i < SIM_SERVERS; i++)
		if (dead(n->mps_server[i].used, n->mps_server[i].pid, n->mps_server[i].start))
			memset(&n->mps_server[i], 0, sizeof n->mps_server[i]);
}

uint64_t sim_memory_used(const struct sim_node *n, uint32_t gpu, uint32_t gi)
{
	uint64_t sum = gi == SIM_NONE ? n->gpu[gpu].unlisted : 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (p->used && p->gpu == gpu && (gi == SIM_NONE || p->gi == gi))
			sum += p->memory;
	}
	for (int i = 0; i < SIM_KEEPERS && gi == SIM_NONE; i++)
		if (n->keeper[i].used && n->keeper[i].gpu == gpu)
			sum += n->keeper[i].memory;
	return sum;
}

struct sim_process *sim_find_process(struct sim_node *n, pid_t pid, uint32_t gpu, uint32_t gi, uint32_t ci)
{
	for (int i = 0; i < SIM_PROCESSES; i++) {
		struct sim_process *p = &n->process[i];
		if (p->used && p->pid == pid && p->gpu == gpu && p->gi == gi && p->ci == ci)
			return p;
	}
	return NULL;
}

struct sim_process *sim_add_process(struct sim_node *n, pid_t pid, uint32_t kind, uint32_t gpu, uint32_t gi, uint32_t ci)
{
	struct sim_process *p = NULL;
	for (int i = 0; i < SIM_PROCESSES && !p; i++)
		if (!n->process[i].used)
			p = &n->process[i];
	uint64_t start = sim_start_time(pid);
	if (!p || !start || gpu >= n->gpu_count)
		return NULL;
	sim_settle(n);
	*p = (struct sim_process){ .used = 1, .pid = pid, .start = start, .uid = geteuid(), .kind = kind, .gpu = gpu, .gi = gi,
		.ci = ci, .limit = SIM_UNSET, .percentage = 100, .since = sim_now(n), .busy_at = sim_now(n) };
	char path[32], comm[64] = "";
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	FILE *f = fopen(path, "re");
	if (f) {
		if (fgets(comm, sizeof comm, f))
			comm[strcspn(comm, "\n")] = 0;
		fclose(f);
	}
	memcpy(p->name, comm, sizeof p->name);
	return p;
}

void sim_drop_process(struct sim_node *n, struct sim_process *p)
{
	uint32_t gpu = p->gpu;
	sim_settle(n);
	world_close_account(n, p);
	memset(p, 0, sizeof *p);
	if (gpu < n->gpu_count)
		sim_sample(n, gpu);
}

void sim_event(struct sim_node *n, uint32_t gpu, uint32_t gi, uint32_t ci, uint64_t type, uint64_t data)
{
	uint64_t s = ++n->event_sequence;
	n->event[s % SIM_EVENTS] =
		(struct sim_event){ .sequence = s, .at = sim_now(n), .type = type, .data = data, .gpu = gpu, .gi = gi, .ci = ci };
}

static int matches(const struct sim_fault *f, const char *call, uint32_t gpu)
{
	size_t len = strnlen(f->call, sizeof f->call);
	int any = len > 0 && f->call[len - 1] == '*';
	return f->used && f->left && (f->gpu == SIM_NONE || f->gpu == gpu) &&
		(any ? strncmp(f->call, call, len - 1) == 0 : strncmp(f->call, call, sizeof f->call) == 0);
}

int sim_fault_planned(const struct sim_node *n, const char *call, uint32_t gpu)
{
	for (int i = 0; i < SIM_FAULTS; i++)
		if (matches(&n->fault[i], call, gpu))
			return n->fault[i].ret;
	return 0;
}

int sim_fault(struct sim_node *n, const char *call, uint32_t gpu)
{
	for (int i = 0; i < SIM_FAULTS; i++) {
		struct sim_fault *f = &n->fault[i];
		if (!matches(f, call, gpu))
			continue;
		int ret = f->ret;
		if (f->left != SIM_NONE && --f->left == 0)
			f->used = 0;
		return ret;
	}
	return 0;
}

/* cgroup.c: memory limits of cgroups, as the driver has them from R615 on.
 *
 * Evidence: MPS documentation, release 615, "MPS v3 Memory Partitioning", and NVIDIA's Dynamo guide "Per-GPU Compute and
 * Memory Limits with MPS" (run by NVIDIA on 615.71.09). Nothing of it was run for real by us. With dmem all limits on
 * the way up bind, CUDA shows that of the leaf alone, and a soft limit is added to every ancestor's; with misc the
 * nearest limit binds and is shown, and nothing is added. */
#include "state.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *sim_cgroup_root(const struct sim_node *n) { return *n->cgroup_root ? n->cgroup_root : "/sys/fs/cgroup"; }

int sim_cgroup_of(const struct sim_node *n, pid_t pid, char *path, size_t size)
{
	char file[32], line[SIM_CGROUP + 8];
	snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
	FILE *f = fopen(file, "re");
	int found = -1;
	while (f && found != 0 && fgets(line, sizeof line, f)) {
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		line[strcspn(line, "\n")] = 0;
		found = snprintf(path, size, "%s%s", sim_cgroup_root(n), line[4] ? line + 3 : "") < (int)size ? 0 : -1;
	}
	if (f)
		fclose(f);
	return found;
}

static uint64_t inode(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

const struct sim_limit *sim_cgroup_limit(const struct sim_node *n, uint32_t gpu, const char *path)
{
	for (int i = 0; i < SIM_LIMITS; i++) {
		const struct sim_limit *l = &n->limit[i];
		if (l->used && l->gpu == gpu && strcmp(l->path, path) == 0)
			return l->inode == inode(path) ? l : NULL;
	}
	return NULL;
}

/* a cgroup, or one below it */
static int within(const char *path, const char *above)
{
	size_t n = strlen(above);
	return strncmp(path, above, n) == 0 && (path[n] == 0 || path[n] == '/');
}

uint64_t sim_cgroup_used(const struct sim_node *n, uint32_t gpu, const char *path)
{
	char of[SIM_CGROUP];
	uint64_t sum = 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (p->used && p->gpu == gpu && sim_cgroup_of(n, p->pid, of, sizeof of) == 0 && within(of, path))
			sum += p->memory;
	}
	return sum;
}

/* The cgroup above, up to but without the root. */
static int up(const struct sim_node *n, char *path)
{
	char *end = strrchr(path, '/');
	if (!end || strlen(path) <= strlen(sim_cgroup_root(n)))
		return 0;
	*end = 0;
	return strlen(path) > strlen(sim_cgroup_root(n));
}

static int limited(const struct sim_node *n, uint32_t gpu)
{
	for (int i = 0; i < SIM_LIMITS; i++)
		if (n->limit[i].used && n->limit[i].gpu == gpu)
			return n->accounting != SIM_NO_ACCOUNTING;
	return 0;
}

uint64_t sim_cgroup_room(const struct sim_node *n, uint32_t gpu, pid_t pid)
{
	char path[SIM_CGROUP];
	uint64_t room = SIM_UNSET;
	if (!limited(n, gpu) || sim_cgroup_of(n, pid, path, sizeof path) != 0)
		return SIM_UNSET;
	do {
		const struct sim_limit *l = sim_cgroup_limit(n, gpu, path);
		if (!l || l->hard == SIM_UNSET)
			continue;
		uint64_t used = sim_cgroup_used(n, gpu, path), left = used < l->hard ? l->hard - used : 0;
		room = left < room ? left : room;
		if (n->accounting == SIM_MISC)
			break;
	} while (up(n, path));
	return room;
}

uint64_t sim_cgroup_total(const struct sim_node *n, uint32_t gpu, pid_t pid)
{
	char path[SIM_CGROUP];
	if (!limited(n, gpu) || sim_cgroup_of(n, pid, path, sizeof path) != 0)
		return SIM_UNSET;
	const struct sim_limit *l;
	do
		l = sim_cgroup_limit(n, gpu, path);
	while (n->accounting == SIM_MISC && (!l || l->hard == SIM_UNSET) && up(n, path));
	return l ? l->hard : SIM_UNSET;
}

uint64_t sim_cgroup_over(const struct sim_node *n, uint32_t gpu, pid_t pid)
{
	char path[SIM_CGROUP];
	if (!limited(n, gpu) || sim_cgroup_of(n, pid, path, sizeof path) != 0)
		return 0;
	const struct sim_limit *l = sim_cgroup_limit(n, gpu, path);
	uint64_t used = sim_cgroup_used(n, gpu, path);
	return l && used > l->soft ? used - l->soft : 0;
}

/* The limit of a cgroup, made if need be; what was of cgroups that are gone is used again. */
static struct sim_limit *take(struct sim_node *n, uint32_t gpu, const char *path)
{
	struct sim_limit *free_place = NULL;
	for (int i = 0; i < SIM_LIMITS; i++) {
		struct sim_limit *l = &n->limit[i];
		if (l->used && l->inode != inode(l->path))
			l->used = 0;
		if (l->used && l->gpu == gpu && strcmp(l->path, path) == 0)
			return l;
		if (!l->used && !free_place)
			free_place = l;
	}
	if (free_place) {
		*free_place = (struct sim_limit){ .used = 1, .gpu = gpu, .hard = SIM_UNSET, .inode = inode(path) };
		snprintf(free_place->path, sizeof free_place->path, "%s", path);
	}
	return free_place;
}

int sim_cgroup_set(struct sim_node *n, uint32_t gpu, const char *path, uint64_t soft, uint64_t hard)
{
	char above[SIM_CGROUP];
	struct sim_limit *l = take(n, gpu, path);
	if (!l)
		return -1;
	uint64_t delta = soft - l->soft; /* may be below 0: unsigned numbers wrap */
	l->soft = soft;
	l->hard = hard;
	snprintf(above, sizeof above, "%s", path);
	while (n->accounting == SIM_DMEM && delta && up(n, above)) {
		if (!(l = take(n, gpu, above)))
			return -1;
		l->soft += delta;
	}
	return 0;
}

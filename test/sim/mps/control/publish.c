/* publish.c: the control daemon in the state, for simgpu and for tests. Where there is no state, it works without. */
#include "control.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../state/state.h"

static struct sim_mps_daemon *own(struct sim_node *n)
{
	struct sim_mps_daemon *free_place = NULL;
	for (int i = 0; i < SIM_DAEMONS; i++) {
		if (n->mps_daemon[i].used && n->mps_daemon[i].pid == getpid())
			return &n->mps_daemon[i];
		if (!n->mps_daemon[i].used && !free_place)
			free_place = &n->mps_daemon[i];
	}
	return free_place;
}

static void copy(char *to, size_t size, const char *from)
{
	memset(to, 0, size);
	if (from)
		memcpy(to, from, strnlen(from, size - 1));
}

void publish(const struct daemon *d)
{
	uint64_t limit[WIRE_DEVICES];
	for (int i = 0; i < WIRE_DEVICES; i++)
		limit[i] = default_limit(d, i); /* it reads the state, which is held from here on */
	struct sim_node *n = sim_write();
	struct sim_mps_daemon *m = n ? own(n) : NULL;
	if (!m) {
		if (n)
			sim_abort();
		return;
	}
	*m = (struct sim_mps_daemon){ .used = 1, .pid = getpid(), .start = sim_start_time(getpid()), .uid = geteuid(),
		.branch = (uint32_t)d->version, .multiuser = (uint32_t)d->multiuser, .static_partitioning = (uint32_t)d->partitioning,
		.percentage = (uint32_t)(d->percentage * 100) };
	for (int i = 0; i < SIM_GPUS && i < WIRE_DEVICES; i++)
		m->limit[i] = limit[i] ? limit[i] : SIM_UNSET;
	copy(m->pipe, sizeof m->pipe, d->pipe);
	copy(m->log, sizeof m->log, d->log);
	copy(m->visible, sizeof m->visible, getenv("CUDA_VISIBLE_DEVICES"));
	sim_end();
}

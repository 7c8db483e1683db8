/* limit.c: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of a client. */
#include "internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As the control daemon reads limits (run for real, 535 to 555): a whole number, then G or g for GiB; every other
 * suffix, and none, is MiB: 1T, 1.5G and "1 G" are 1 MiB; -5M is nearly 2^64; 0 is no limit. That the client reads
 * its variable by the same code is inferred. */
uint64_t parse_limit(const char *value)
{
	char *end;
	uint64_t number = (uint64_t)strtoll(value, &end, 10);
	if (number == 0)
		return SIM_UNSET;
	return number << (*end == 'G' || *end == 'g' ? 30 : 20);
}

static int ordinal(const struct sim_node *n, const struct devices *d, const char *name)
{
	char *end;
	long number = strtol(name, &end, 10);
	if (end != name && !*end)
		return number >= 0 && number < d->count ? (int)number : -1;
	for (int i = 0; i < d->count; i++) {
		const struct sim_ci *ci = NULL;
		view_locate(n, d->d[i], &ci);
		if (strcmp(name, n->gpu[d->d[i].gpu].uuid) == 0 || (ci && strcmp(name, ci->uuid) == 0))
			return i;
	}
	return -1;
}

/* A client may only lower what its server gives it. An entry for a device that the process does not see takes every
 * limit away, the server's too (NVIDIA Dynamo guide, "Per-GPU Compute and Memory Limits with MPS", on R615: 96,768
 * MiB could be allocated under 2G). An entry without = is taken as such an entry (inferred). */
void apply_limits(const struct sim_node *n, const struct devices *d, const char *list, uint64_t *limit)
{
	uint64_t wish[DEVICES];
	for (int i = 0; i < DEVICES; i++)
		wish[i] = SIM_UNSET;
	for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		char entry[128];
		snprintf(entry, sizeof entry, "%.*s", (int)strcspn(p, ","), p);
		char *value = strchr(entry, '=');
		if (value)
			*value++ = 0;
		int i = value ? ordinal(n, d, entry) : -1;
		if (i < 0) {
			for (int k = 0; k < DEVICES; k++)
				limit[k] = SIM_UNSET;
			return;
		}
		wish[i] = parse_limit(value); /* the last one for a device counts */
	}
	for (int i = 0; i < d->count; i++)
		if (wish[i] < limit[i])
			limit[i] = wish[i];
}

/* Hundredths of a per cent; a client may only lower. Outside (0, 100] the variable is ignored, as the daemon does. */
uint32_t parse_percentage(const char *value, uint32_t most)
{
	char *end;
	double p = value ? strtod(value, &end) : 0;
	if (!value || end == value || !(p > 0) || p > 100)
		return most;
	uint32_t own = (uint32_t)(p * 100 + 0.5);
	return own < most ? own : most;
}

/* visible.c: which devices CUDA_VISIBLE_DEVICES leaves.
 *
 * Evidence: CUDA C++ Programming Guide, "CUDA Environment Variables" (ordinals, GPU-<uuid> and its beginnings,
 * MIG-<uuid>; an invalid entry ends the list); PyTorch's torch/cuda/__init__.py, which copies the driver's behaviour
 * to count GPUs without CUDA (numbers by strtoul; a list is all numbers, all GPU-… or all MIG-…; a device named twice
 * empties the list; a beginning that fits two GPUs is invalid); MIG User Guide, "CUDA Device Enumeration" (one
 * compute instance at most, and no whole GPU beside it). */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_ci *first_instance(const struct sim_gpu *g, struct device *d)
{
	for (int i = 0; i < SIM_GIS; i++)
		for (int k = 0; g->gi[i].used && k < SIM_CIS; k++)
			if (g->gi[i].ci[k].used) {
				d->gi = g->gi[i].id;
				d->ci = g->gi[i].ci[k].id;
				return (struct sim_ci *)&g->gi[i].ci[k];
			}
	return NULL;
}

/* A GPU in MIG mode stands for its first compute instance, and is no device while it has none. */
static int usable(const struct sim_node *n, uint32_t gpu, struct device *d)
{
	const struct sim_gpu *g = &n->gpu[gpu];
	*d = (struct device){ gpu, SIM_NONE, SIM_NONE };
	return !g->lost && (!g->mig_current || first_instance(g, d));
}

static uint32_t speed(const struct sim_node *n, uint32_t gpu)
{
	const struct sim_model *m = sim_model(n->gpu[gpu].model);
	return m ? m->sm * m->clock_sm : 0;
}

static uint64_t bus(const struct sim_gpu *g)
{
	return (uint64_t)g->pci_domain << 16 | g->pci_bus << 8 | g->pci_device;
}

/* CUDA_DEVICE_ORDER: FASTEST_FIRST is the default, PCI_BUS_ID the other. Equal GPUs stand in the order of the bus. */
struct devices all_devices(const struct sim_node *n)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	int by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
	struct devices all = { 0 };
	for (uint32_t gpu = 0; gpu < n->gpu_count; gpu++) {
		struct device d;
		if (!usable(n, gpu, &d))
			continue;
		int at = all.count++;
		for (; at > 0; at--) {
			uint32_t other = all.d[at - 1].gpu;
			int slower = !by_bus && speed(n, other) < speed(n, gpu);
			int equal = by_bus || speed(n, other) == speed(n, gpu);
			if (!slower && !(equal && bus(&n->gpu[other]) > bus(&n->gpu[gpu])))
				break;
			all.d[at] = all.d[at - 1];
		}
		all.d[at] = d;
	}
	return all;
}

void fold_mig(struct devices *d)
{
	for (int i = 0; i < d->count; i++)
		if (d->d[i].gi != SIM_NONE) {
			struct device mig = d->d[i];
			*d = (struct devices){ .count = 1, .d = { mig }, .fixed = d->fixed };
			return;
		}
}

/* GPU-<beginning>: the one device that fits, or -1. */
static int by_gpu(const struct sim_node *n, const struct devices *from, const char *id)
{
	int found = -1;
	for (int i = 0; i < from->count; i++)
		if (strncmp(n->gpu[from->d[i].gpu].uuid, id, strlen(id)) == 0) {
			if (found >= 0)
				return -1;
			found = i;
		}
	return found;
}

/* MIG-<uuid> in full, or MIG-GPU-<uuid>/<GI>/<CI> as before R470. Any instance of a GPU in from may be named, but
 * behind a control daemon only the one that it has. */
static int by_mig(const struct sim_node *n, const struct devices *from, const char *id, struct device *d)
{
	for (int i = 0; i < from->count; i++) {
		uint32_t gpu = from->d[i].gpu;
		const struct sim_gpu *g = &n->gpu[gpu];
		for (int j = 0; j < SIM_GIS; j++)
			for (int k = 0; g->gi[j].used && k < SIM_CIS; k++) {
				const struct sim_ci *ci = &g->gi[j].ci[k];
				char old[128];
				snprintf(old, sizeof old, "MIG-%s/%u/%u", g->uuid, g->gi[j].id, ci->id);
				if (!ci->used || (strcmp(ci->uuid, id) != 0 && strcmp(old, id) != 0))
					continue;
				*d = (struct device){ gpu, g->gi[j].id, ci->id };
				return from->fixed && memcmp(d, &from->d[i], sizeof *d) != 0 ? -1 : i;
			}
	}
	return -1;
}

enum form { NUMBERS, GPUS, MIGS };

static enum form form_of(const char *s)
{
	return strncmp(s, "GPU-", 4) == 0 ? GPUS : strncmp(s, "MIG-", 4) == 0 ? MIGS : NUMBERS;
}

static int one(const struct sim_node *n, const struct devices *from, const char *entry, enum form form, struct device *d)
{
	int i = -1;
	char *end;
	if (form == MIGS)
		return form_of(entry) == MIGS ? by_mig(n, from, entry, d) : -1;
	if (form == GPUS && form_of(entry) == GPUS)
		i = by_gpu(n, from, entry);
	if (form == NUMBERS) {
		long number = strtol(entry, &end, 10);
		i = end == entry || number < 0 || number >= from->count ? -1 : (int)number;
	}
	if (i >= 0)
		*d = from->d[i];
	return i;
}

static int has(const struct devices *list, struct device d)
{
	for (int i = 0; i < list->count; i++)
		if (memcmp(&list->d[i], &d, sizeof d) == 0)
			return 1;
	return 0;
}

/* list NULL: no variable, all devices. */
struct devices select_devices(const struct sim_node *n, const struct devices *from, const char *list)
{
	struct devices chosen = { 0 };
	if (!list)
		return *from;
	enum form form = form_of(list);
	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		char entry[128];
		struct device d;
		snprintf(entry, sizeof entry, "%.*s", (int)strcspn(p, ","), p);
		if (one(n, from, entry, form, &d) < 0)
			break;
		if (has(&chosen, d))
			return (struct devices){ 0 };
		if (chosen.count < DEVICES)
			chosen.d[chosen.count++] = d;
	}
	return chosen;
}

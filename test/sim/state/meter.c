/* meter.c: load, and what follows from it over time: energy, temperature, work done, samples, accounting.
 *
 * Nothing runs in the background. A load holds until somebody changes it, and sim_settle books the time since the
 * last booking before that. A process that died unseen counts as busy until the next look at the state. */
#include "world.h"

#include <string.h>

static uint64_t capped(uint64_t sum, uint64_t most) { return sum > most ? most : sum; }

static uint32_t slices_of(const struct sim_node *n, const struct sim_process *p)
{
	for (int i = 0; i < SIM_GIS; i++) {
		const struct sim_gi *gi = &n->gpu[p->gpu].gi[i];
		for (int k = 0; k < SIM_CIS && gi->used && gi->id == p->gi; k++)
			if (gi->ci[k].used && gi->ci[k].id == p->ci)
				return gi->ci[k].size;
	}
	return 1;
}

/* A kernel that may use 10 % of the multiprocessors and does so all the time: load 10, kernel load 100 (seen as
 * "100 % at a cap of 1 %", nvidia-docker 807). */
uint32_t sim_process_kernel_load(const struct sim_process *p)
{
	uint32_t cap = p->percentage > 0 && p->percentage < 100 ? p->percentage : 100;
	return (uint32_t)capped((uint64_t)p->load * 100 / cap, 100);
}

/* The load of a GPU, or of one GPU instance (sm: times its slices), in 1/1000 per cent. */
static struct sim_busy load_of(const struct sim_node *n, uint32_t gpu, uint32_t gi)
{
	struct sim_busy sum = { 0 };
	uint64_t slices = n->gpu[gpu].compute_slices ? n->gpu[gpu].compute_slices : 7;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (!p->used || p->gpu != gpu || (gi != SIM_NONE && p->gi != gi))
			continue;
		uint64_t sm = (uint64_t)p->load * 1000;
		if (p->gi != SIM_NONE)
			sm = sm * slices_of(n, p) / (gi == SIM_NONE ? slices : 1);
		sum.sm += sm;
		sum.kernel += (uint64_t)sim_process_kernel_load(p) * 1000;
		sum.memory += (uint64_t)p->memory_load * 1000;
	}
	sum.sm = capped(sum.sm, gi == SIM_NONE ? 100000 : 100000 * slices);
	sum.kernel = capped(sum.kernel, 100000);
	sum.memory = capped(sum.memory, 100000);
	return sum;
}

uint32_t sim_load(const struct sim_node *n, uint32_t gpu) { return (uint32_t)(load_of(n, gpu, SIM_NONE).sm / 1000); }
uint32_t sim_kernel_load(const struct sim_node *n, uint32_t gpu) { return (uint32_t)(load_of(n, gpu, SIM_NONE).kernel / 1000); }
uint32_t sim_memory_load(const struct sim_node *n, uint32_t gpu) { return (uint32_t)(load_of(n, gpu, SIM_NONE).memory / 1000); }

static uint64_t top_power(const struct sim_gpu *g) { return g->power_limit > g->power_idle ? g->power_limit : g->power_idle; }

uint64_t sim_power(const struct sim_node *n, uint32_t gpu)
{
	const struct sim_gpu *g = &n->gpu[gpu];
	if (g->power_set != SIM_UNSET)
		return g->power_set;
	return g->power_idle + (top_power(g) - g->power_idle) * load_of(n, gpu, SIM_NONE).sm / 100000;
}

/* 32 degrees when idle, 80 at the power limit, reached with a time constant of 8 s. */
enum { IDLE_M = 32000, TOP_M = 80000, WARMING_US = 8000000 };

static void settle_temperature(struct sim_gpu *g, uint64_t power, uint64_t now)
{
	uint64_t span = top_power(g) - g->power_idle, over = power > g->power_idle ? capped(power - g->power_idle, span) : 0;
	int64_t target = IDLE_M + (span ? (int64_t)((TOP_M - IDLE_M) * over / span) : 0);
	if (!g->temperature_at)
		g->temperature_m = IDLE_M;
	else if (now > g->temperature_at) {
		int64_t dt = (int64_t)capped(now - g->temperature_at, 3600ull * 1000000);
		g->temperature_m = (uint64_t)((int64_t)g->temperature_m + (target - (int64_t)g->temperature_m) * dt / (dt + WARMING_US));
	}
	g->temperature_at = now;
}

uint32_t sim_temperature(const struct sim_node *n, uint32_t gpu)
{
	const struct sim_gpu *g = &n->gpu[gpu];
	if (g->temperature_set != SIM_UNSET)
		return (uint32_t)g->temperature_set;
	return (uint32_t)((g->temperature_at ? g->temperature_m : IDLE_M) / 1000);
}

static void add(struct sim_busy *b, struct sim_busy load, uint64_t us)
{
	b->sm += load.sm * us;
	b->kernel += load.kernel * us;
	b->memory += load.memory * us;
}

static void settle_gpu(struct sim_node *n, uint32_t gpu, uint64_t now)
{
	struct sim_gpu *g = &n->gpu[gpu];
	uint64_t power = sim_power(n, gpu), us = g->energy_at && now > g->energy_at ? now - g->energy_at : 0;
	settle_temperature(g, power, now);
	g->energy_uj += power * us / 1000; /* mW x us = nJ */
	add(&g->busy, load_of(n, gpu, SIM_NONE), us);
	for (int i = 0; i < SIM_GIS; i++)
		if (g->gi[i].used)
			add(&g->gi[i].busy, load_of(n, gpu, g->gi[i].id), us);
	if (power >= g->power_limit && g->power_limit)
		g->violation_ns[0] += us * 1000;
	g->energy_at = now;
}

/* Work of an MPS client is booked on the server ("pmon": the server 95 %, its clients "-"; DRA driver PR 1143). */
static struct sim_process *booked_on(struct sim_node *n, struct sim_process *p)
{
	for (int i = 0; i < SIM_PROCESSES && p->kind == SIM_MPS_CLIENT && p->server; i++) {
		struct sim_process *s = &n->process[i];
		if (s->used && s->pid == p->server && s->gpu == p->gpu && s->gi == p->gi && s->ci == p->ci)
			return s;
	}
	return p;
}

/* The record of a process that runs, else a free place, else that of the one that ended first. */
static struct sim_account *account_of(struct sim_node *n, const struct sim_process *p)
{
	struct sim_account *place = NULL;
	for (int i = 0; i < SIM_ACCOUNTS; i++) {
		struct sim_account *a = &n->account[i];
		if (a->used && a->running && a->pid == p->pid && a->start == p->start && a->gpu == p->gpu)
			return a;
		if (a->used && a->running)
			continue;
		if (!place || (place->used && (!a->used || a->ended < place->ended)))
			place = a;
	}
	return place;
}

static void keep_account(struct sim_node *n, const struct sim_process *p, uint64_t ended)
{
	struct sim_account *a = p->gpu < n->gpu_count && n->gpu[p->gpu].accounting ? account_of(n, p) : NULL;
	if (a)
		*a = (struct sim_account){ .used = 1, .pid = p->pid, .gpu = p->gpu, .running = !ended, .since = p->since,
			.ended = ended, .memory_peak = p->memory_peak, .busy = p->busy, .start = p->start };
}

void world_close_account(struct sim_node *n, const struct sim_process *p)
{
	keep_account(n, p, sim_now(n));
	if (p->load && p->kind != SIM_MPS_CLIENT)
		n->gone[n->gone_next++ % SIM_GONE] = (struct sim_gone){ .at = sim_now(n), .gpu = p->gpu, .pid = p->pid,
			.kernel_load = sim_process_kernel_load(p), .memory_load = p->memory_load };
}

void sim_settle(struct sim_node *n)
{
	uint64_t now = sim_now(n);
	for (uint32_t g = 0; g < n->gpu_count; g++)
		settle_gpu(n, g, now);
	for (int i = 0; i < SIM_PROCESSES; i++) {
		struct sim_process *p = &n->process[i];
		if (!p->used || p->gpu >= n->gpu_count)
			continue;
		struct sim_busy load = { p->load * 1000ull, sim_process_kernel_load(p) * 1000ull, p->memory_load * 1000ull };
		if (p->busy_at && now > p->busy_at)
			add(&booked_on(n, p)->busy, load, now - p->busy_at);
		p->busy_at = now;
		if (p->memory > p->memory_peak)
			p->memory_peak = p->memory;
	}
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (n->process[i].used)
			keep_account(n, &n->process[i], 0);
}

void sim_sample(struct sim_node *n, uint32_t gpu)
{
	struct sim_gpu *d = &n->gpu[gpu];
	d->samples[d->samples_next++ % SIM_SAMPLES] = (struct sim_sample){ .at = sim_now(n), .gpu_load = sim_load(n, gpu),
		.memory_load = sim_memory_load(n, gpu), .kernel_load = sim_kernel_load(n, gpu) };
}

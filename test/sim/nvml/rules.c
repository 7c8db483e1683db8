/* rules.c: what MIG allows: which instance fits where (MIG User Guide, Partitioning), and what compute instances a
 * GPU instance can have. */
#include "mig.h"

#include <stdio.h>
#include <string.h>

int sim_offered(const struct sim_node *n, const struct sim_profile *p) { return n->branch >= p->driver; }

struct sim_gi *sim_gi(const struct sim_gpu *g, uint32_t id)
{
	for (int i = 0; i < SIM_GIS; i++)
		if (g->gi[i].used && g->gi[i].id == id)
			return (struct sim_gi *)&g->gi[i];
	return NULL;
}

struct sim_ci *sim_ci(const struct sim_gi *gi, uint32_t id)
{
	for (int i = 0; i < SIM_CIS; i++)
		if (gi->ci[i].used && gi->ci[i].id == id)
			return (struct sim_ci *)&gi->ci[i];
	return NULL;
}

int sim_gi_busy(const struct sim_node *n, uint32_t gpu, uint32_t gi, uint32_t ci)
{
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (p->used && p->gpu == gpu && p->gi == gi && (ci == SIM_NONE || p->ci == ci))
			return 1;
	}
	return 0;
}

/* What the instances of a GPU hold. */
struct holding { uint32_t units, slices, same, dec, enc, jpeg, ofa, three, four; };

static struct holding held(const struct sim_call *c, uint32_t profile)
{
	struct holding h = { 0 };
	for (int i = 0; i < SIM_GIS; i++) {
		const struct sim_gi *gi = &c->g->gi[i];
		if (!gi->used)
			continue;
		const struct sim_profile *p = sim_profile(c->m, gi->profile);
		h.units |= ((1u << gi->size) - 1) << gi->start;
		h.slices += p->slices;
		h.same += p->id == profile;
		h.dec += p->dec;
		h.enc += p->enc;
		h.jpeg += p->jpeg;
		h.ofa += p->ofa;
		h.three += p->slices == 3;
		h.four += p->slices == 4;
	}
	return h;
}

/* 4g beside 3g needs R510 on GA100. */
static int pair_refused(const struct sim_call *c, const struct sim_profile *p, const struct holding *h)
{
	return c->n->branch < 510 && c->m->slices == 7 && ((p->slices == 3 && h->four) || (p->slices == 4 && h->three));
}

nvmlReturn_t sim_fits(const struct sim_call *c, const struct sim_profile *p, uint32_t start)
{
	struct holding h = held(c, p->id);
	int fits = (h.units & ((1u << p->size) - 1) << start) == 0 && h.same < p->max && h.slices + p->slices <= c->m->slices &&
		h.dec + p->dec <= c->m->dec && h.enc + p->enc <= c->m->enc && h.jpeg + p->jpeg <= c->m->jpeg &&
		h.ofa + p->ofa <= c->m->ofa && !pair_refused(c, p, &h);
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static uint32_t at_most(uint32_t n, uint32_t have, uint32_t held, uint32_t need)
{
	uint32_t room = need && have >= held ? (have - held) / need : n;
	return room < n ? room : n;
}

uint32_t sim_capacity(const struct sim_call *c, const struct sim_profile *p)
{
	struct holding h = held(c, p->id);
	uint32_t places = 0;
	for (uint32_t s = 0; s < 32; s++)
		places += p->starts >> s & 1 && sim_fits(c, p, s) == NVML_SUCCESS;
	places = at_most(places, p->max, h.same, 1);
	places = at_most(places, c->m->slices, h.slices, p->slices);
	places = at_most(places, c->m->dec, h.dec, p->dec);
	places = at_most(places, c->m->enc, h.enc, p->enc);
	places = at_most(places, c->m->jpeg, h.jpeg, p->jpeg);
	return at_most(places, c->m->ofa, h.ofa, p->ofa);
}

/* Slices of NVML_COMPUTE_INSTANCE_PROFILE_…; 7 is the rev1 of one slice. 8_SLICE and 7_SLICE_NVL: on no model here. */
static const uint32_t ci_slices[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = { 1, 2, 3, 4, 7, 0, 6, 1, 0 };

/* The double-memory instance of Hopper has more multiprocessors than one slice: its default compute instance is rev1
 * (public GH200 listing). */
static int has_rev1(const struct sim_model *m, const struct sim_profile *p)
{
	return p->kind == NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2 && p->sm != m->profiles[0].sm;
}

int sim_ci_profile(struct sim_ci_profile *out, const struct sim_model *m, const struct sim_gi *gi, uint32_t profile)
{
	const struct sim_profile *p = sim_profile(m, gi->profile);
	uint32_t s = profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT ? ci_slices[profile] : 0;
	int rev1 = profile == NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1;
	/* 3c exists in 3g and 7g only (MIG User Guide, -lcip listings). */
	if (s == 0 || s > p->slices || (s == 3 && p->slices == 4) || (s == 6 && p->slices != 6) || (rev1 && !has_rev1(m, p)))
		return 0;
	int whole = s == p->slices && (rev1 || !has_rev1(m, p));
	*out = (struct sim_ci_profile){ s, whole ? p->sm : s * m->profiles[0].sm, p->slices / s };
	return 1;
}

uint32_t sim_ci_starts(const struct sim_model *m, const struct sim_gi *gi, uint32_t profile)
{
	struct sim_ci_profile k;
	uint32_t starts = 0, slices = sim_profile(m, gi->profile)->slices;
	if (!sim_ci_profile(&k, m, gi, profile))
		return 0;
	uint32_t step = k.slices == 3 ? 4 : k.slices; /* three slices lie on the grid of four, as 3g does */
	for (uint32_t s = 0; s + k.slices <= slices; s += step)
		starts |= 1u << s;
	return starts;
}

void sim_ci_name(char *room, size_t length, const struct sim_model *m, const struct sim_gi *gi, uint32_t profile)
{
	struct sim_ci_profile k;
	const struct sim_profile *p = sim_profile(m, gi->profile);
	if (!sim_ci_profile(&k, m, gi, profile) || k.sm == p->sm)
		snprintf(room, length, "MIG %s", p->name);
	else
		snprintf(room, length, "MIG %uc.%s", k.slices, p->name);
}

nvmlReturn_t sim_enter_gi(struct sim_call *c, const char *call, nvmlGpuInstance_t handle, unsigned how, struct sim_gi **gi)
{
	uint32_t gpu, id, ci;
	*c = (struct sim_call){ .gpu = SIM_NONE };
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (!sim_locate(handle, &gpu, &id, &ci) || id == SIM_NONE || ci != SIM_NONE)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = sim_enter(c, call, sim_handle(gpu), how | SIM_ROOT | SIM_MIG);
	if (r != NVML_SUCCESS)
		return r;
	c->gi = id;
	*gi = sim_gi(c->g, id);
	return *gi ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t sim_enter_ci(struct sim_call *c, const char *call, nvmlComputeInstance_t handle, unsigned how, struct sim_gi **gi,
	struct sim_ci **ci)
{
	uint32_t gpu, id, ciid;
	*c = (struct sim_call){ .gpu = SIM_NONE };
	if (!sim_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (sim_is_mig_handle(handle) || !sim_locate(handle, &gpu, &id, &ciid) || ciid == SIM_NONE)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = sim_enter_gi(c, call, sim_gi_handle(gpu, id), how, gi);
	if (r != NVML_SUCCESS)
		return r;
	c->ci = ciid;
	*ci = sim_ci(*gi, ciid);
	return *ci ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* show.c: the state for people, and as JSON for programs. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

static struct table t;

static unsigned long long mib(uint64_t bytes) { return (unsigned long long)(bytes >> 20); }

static const char *mode(uint32_t m) { return m == 0 ? "default" : m == 2 ? "prohibited" : m == 3 ? "exclusive-process" : "?"; }

static const char *mig_mode(const struct sim_gpu *g)
{
	const char *now = g->mig_current ? "on" : "off";
	if (g->mig_current != g->mig_pending)
		return text("%s, pending %s", now, g->mig_pending ? "on" : "off");
	return sim_model(g->model)->units ? now : "";
}

static const char *trouble(const struct sim_gpu *g)
{
	static char s[160];
	snprintf(s, sizeof s, "%s%s%s%s%s", g->lost ? ", lost" : "", g->hang ? ", hangs" : "", g->memory_unavailable ? ", no memory readings" : "",
		g->reset_blocked ? ", reset blocked" : "", g->last_xid ? text(", XID %u", g->last_xid) : "");
	return *s ? s + 2 : "";
}

static void show_gpus(const struct sim_node *n)
{
	table_row(&t, 8, "GPU", "UUID", "NAME", "MEMORY", "LOAD", "COMPUTE MODE", "MIG", "TROUBLE");
	for (uint32_t i = 0; i < n->gpu_count; i++) {
		const struct sim_gpu *g = &n->gpu[i];
		table_row(&t, 8, text("%u", i), g->uuid, g->name, text("%llu of %llu MiB", mib(sim_memory_used(n, i, SIM_NONE)), mib(g->memory_total)),
			text("%u %%", sim_load(n, i)), mode(g->compute_mode), mig_mode(g), trouble(g));
	}
	table_print(&t, "");
}

/* The first profile of that id; ids are unique within a model. */
static const char *profile(const struct sim_gpu *g, const struct sim_gi *gi)
{
	const struct sim_profile *p = sim_profile(sim_model(g->model), gi->profile);
	return p ? p->name : "?";
}

static void show_mig(const struct sim_node *n)
{
	table_row(&t, 6, "GPU", "GI", "CI", "PROFILE", "UUID", "MEMORY");
	for (uint32_t i = 0; i < n->gpu_count; i++)
		for (int k = 0; k < SIM_GIS; k++) {
			const struct sim_gi *gi = &n->gpu[i].gi[k];
			const char *name = gi->used ? text("%s@%u", profile(&n->gpu[i], gi), gi->start) : "";
			int instances = 0;
			for (int c = 0; gi->used && c < SIM_CIS; c++)
				if (gi->ci[c].used && ++instances)
					table_row(&t, 6, text("%u", i), text("%u", gi->id), text("%u", gi->ci[c].id), name, gi->ci[c].uuid,
						text("%llu MiB", mib(sim_memory_used(n, i, gi->id))));
			if (gi->used && !instances)
				table_row(&t, 6, text("%u", i), text("%u", gi->id), "", name, "", "");
		}
	table_print(&t, "MIG devices");
}

static const char *instance(uint32_t id) { return id == SIM_NONE ? "" : text("%u", id); }
static const char *limit(uint64_t bytes) { return bytes == SIM_UNSET || !bytes ? "" : text("%llu MiB", mib(bytes)); }

static const char *kind(uint32_t k)
{
	return k == SIM_COMPUTE ? "compute" : k == SIM_MPS_CLIENT ? "MPS client" : k == SIM_MPS_SERVER ? "MPS server" : "graphics";
}

static void show_processes(const struct sim_node *n)
{
	table_row(&t, 9, "PID", "NAME", "KIND", "GPU", "GI", "CI", "MEMORY", "LIMIT", "LOAD");
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (p->used)
			table_row(&t, 9, text("%d", p->pid), p->name, kind(p->kind), text("%u", p->gpu), instance(p->gi), instance(p->ci),
				text("%llu MiB", mib(p->memory)), limit(p->limit), text("%u %%", p->load));
	}
	table_print(&t, "Processes");
}

static const char *server_state(uint32_t s)
{
	return s == SIM_SERVER_ACTIVE ? "ACTIVE" : s == SIM_SERVER_FAULT ? "FAULT" : "INITIALIZING";
}

static void show_mps(const struct sim_node *n)
{
	table_row(&t, 5, "PID", "BRANCH", "UID", "VISIBLE DEVICES", "PIPE DIRECTORY");
	for (int i = 0; i < SIM_DAEMONS; i++) {
		const struct sim_mps_daemon *d = &n->mps_daemon[i];
		if (d->used)
			table_row(&t, 5, text("%d", d->pid), text("%u", d->branch), text("%u", d->uid), *d->visible ? d->visible : "all", d->pipe);
	}
	table_print(&t, "MPS control daemons");
	table_row(&t, 4, "PID", "DAEMON", "UID", "STATE");
	for (int i = 0; i < SIM_SERVERS; i++) {
		const struct sim_mps_server *s = &n->mps_server[i];
		if (s->used)
			table_row(&t, 4, text("%d", s->pid), text("%d", s->daemon), text("%u", s->uid), server_state(s->state));
	}
	table_print(&t, "MPS servers");
	table_row(&t, 4, "PID", "SERVER", "UID", "ERROR");
	for (int i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &n->mps_client[i];
		if (c->used)
			table_row(&t, 4, text("%d", c->pid), text("%d", c->server), text("%u", c->uid), c->error ? text("%d", c->error) : "");
	}
	table_print(&t, "MPS clients");
}

static void show_limits(const struct sim_node *n)
{
	table_row(&t, 5, "CGROUP", "GPU", "SOFT", "HARD", "USED");
	for (int i = 0; i < SIM_LIMITS; i++) {
		const struct sim_limit *l = &n->limit[i];
		if (l->used)
			table_row(&t, 5, l->path, text("%u", l->gpu), text("%llu MiB", mib(l->soft)), limit(l->hard),
				sim_cgroup_limit(n, l->gpu, l->path) ? text("%llu MiB", mib(sim_cgroup_used(n, l->gpu, l->path))) : "gone");
	}
	table_print(&t, "Memory limits of cgroups");
}

static void show_faults(const struct sim_node *n)
{
	table_row(&t, 4, "CALL", "GPU", "RESULT", "LEFT");
	for (int i = 0; i < SIM_FAULTS; i++) {
		const struct sim_fault *f = &n->fault[i];
		if (f->used)
			table_row(&t, 4, f->call, f->gpu == SIM_NONE ? "any" : text("%u", f->gpu), f->ret == SIM_HANG ? "hangs" : text("%d", f->ret),
				f->left == SIM_NONE ? "for ever" : text("%u", f->left));
	}
	table_print(&t, "Planned failures");
}

void show(const struct sim_node *n)
{
	printf("driver %s, CUDA %u.%u%s%s\n\n", n->driver, n->cuda / 1000, n->cuda % 1000 / 10, n->driver_missing ? ", not loaded" : "",
		n->clock_offset ? text(", clock %+lld s", (long long)n->clock_offset / 1000000) : "");
	show_gpus(n);
	show_mig(n);
	show_processes(n);
	show_mps(n);
	show_limits(n);
	show_faults(n);
}

/* Strings of the state are names and paths; only quotes, backslashes and control characters need care. */
static const char *quoted(const char *s)
{
	static char ring[4][512];
	static unsigned next;
	char *to = ring[next++ % 4], *p = to;
	*p++ = '"';
	for (; *s && p < to + sizeof ring[0] - 10; s++)
		p += sprintf(p, (unsigned char)*s < 0x20 ? "\\u%04x" : strchr("\"\\", *s) ? "\\%c" : "%c", *s);
	strcpy(p, "\"");
	return to;
}

static const char *comma(int *first)
{
	int was = *first;
	*first = 0;
	return was ? "\n    " : ",\n    ";
}

static void json_mig(const struct sim_gpu *g)
{
	const char *separator = "";
	for (int k = 0; k < SIM_GIS; k++)
		for (int c = 0; g->gi[k].used && c < SIM_CIS; c++)
			if (g->gi[k].ci[c].used) {
				printf("%s{\"gi\": %u, \"ci\": %u, \"profile\": %s, \"start\": %u, \"size\": %u, \"uuid\": %s}", separator, g->gi[k].id,
					g->gi[k].ci[c].id, quoted(profile(g, &g->gi[k])), g->gi[k].start, g->gi[k].size, quoted(g->gi[k].ci[c].uuid));
				separator = ", ";
			}
}

static void json_gpus(const struct sim_node *n)
{
	int first = 1;
	for (uint32_t i = 0; i < n->gpu_count; i++) {
		const struct sim_gpu *g = &n->gpu[i];
		printf("%s{\"index\": %u, \"uuid\": %s, \"name\": %s, \"model\": %s, ", comma(&first), i, quoted(g->uuid), quoted(g->name), quoted(g->model));
		printf("\"pci_bus_id\": \"%04x:%02x:%02x.0\", \"memory_mib\": %llu, \"used_mib\": %llu, \"load\": %u, ", g->pci_domain, g->pci_bus,
			g->pci_device, mib(g->memory_total), mib(sim_memory_used(n, i, SIM_NONE)), sim_load(n, i));
		printf("\"compute_mode\": \"%s\", \"mig_enabled\": %s, \"mig_pending\": %s, ", mode(g->compute_mode),
			g->mig_current ? "true" : "false", g->mig_pending ? "true" : "false");
		printf("\"lost\": %s, \"hangs\": %s, \"last_xid\": %u, \"mig_devices\": [", g->lost ? "true" : "false", g->hang ? "true" : "false",
			g->last_xid);
		json_mig(g);
		printf("]}");
	}
}

static void json_processes(const struct sim_node *n)
{
	int first = 1;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (!p->used)
			continue;
		printf("%s{\"pid\": %d, \"name\": %s, \"kind\": \"%s\", \"uid\": %u, \"gpu\": %u", comma(&first), p->pid, quoted(p->name), kind(p->kind),
			p->uid, p->gpu);
		if (p->gi != SIM_NONE)
			printf(", \"gi\": %u, \"ci\": %u", p->gi, p->ci);
		if (p->limit != SIM_UNSET)
			printf(", \"limit_mib\": %llu", mib(p->limit));
		printf(", \"memory_mib\": %llu, \"peak_mib\": %llu, \"load\": %u, \"percentage\": %u}", mib(p->memory), mib(p->memory_peak), p->load,
			p->percentage);
	}
}

static void json_mps(const struct sim_node *n)
{
	int first = 1;
	for (int i = 0; i < SIM_SERVERS; i++) {
		const struct sim_mps_server *s = &n->mps_server[i];
		if (s->used)
			printf("%s{\"pid\": %d, \"daemon\": %d, \"uid\": %u, \"state\": \"%s\"}", comma(&first), s->pid, s->daemon, s->uid,
				server_state(s->state));
	}
}

void show_json(const struct sim_node *n)
{
	printf("{\n  \"driver\": %s,\n  \"cuda\": \"%u.%u\",\n  \"gpus\": [", quoted(n->driver), n->cuda / 1000, n->cuda % 1000 / 10);
	json_gpus(n);
	printf("\n  ],\n  \"processes\": [");
	json_processes(n);
	printf("\n  ],\n  \"mps_servers\": [");
	json_mps(n);
	printf("\n  ]\n}\n");
}

/* simpoke: what the simulator's own tests need below simgpu: nodes made of model names, a process that holds a
 * device, and a writer that stops in the middle of an update.
 *
 *	simpoke make DRIVER MODEL…        make the node (again)
 *	simpoke models                    the keys, one a line
 *	simpoke reserved                  key, MiB that the driver keeps, where that number comes from
 *	simpoke hold GPU GI CI MIB LOAD   be a process there (- for no instance) until stdin ends
 *	simpoke tear                      change everything, commit nothing, wait to be killed
 *	simpoke fork                      0 if a process and its children count together without a loss
 *	simpoke set GPU FIELD VALUE       lost, hang, reset_blocked, compute_mode, mig
 *	simpoke processes                 one a line
 *	simpoke check                     0 if the state is whole and no two instances overlap */
#include "../nvml/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static int make(int argc, char **argv)
{
	static struct sim_node n;
	sim_make_node(&n, argv[0]);
	for (int i = 1; i < argc && i <= SIM_GPUS; i++) {
		const struct sim_model *m = sim_model(argv[i]);
		if (!m) {
			fprintf(stderr, "no model %s; simpoke models lists them\n", argv[i]);
			return 2;
		}
		sim_make_gpu(&n.gpu[n.gpu_count], m, n.gpu_count, 1);
		n.gpu[n.gpu_count].memory_reserved = sim_reserved_mib(m, n.branch) << 20;
		n.gpu_count++;
	}
	return sim_create(&n) < 0 ? fail(sim_path()) : 0;
}

static int models(void)
{
	for (uint32_t i = 0; i < sim_model_count; i++)
		puts(sim_models[i].key);
	return 0;
}

static int reserved(void)
{
	for (uint32_t i = 0; i < sim_model_count; i++)
		printf("%s\t%llu\t%s\n", sim_models[i].key, (unsigned long long)sim_models[i].reserved_mib,
			sim_models[i].reserved_from ? sim_models[i].reserved_from : "");
	return 0;
}

static uint32_t instance(const char *s) { return *s == '-' ? SIM_NONE : (uint32_t)strtoul(s, NULL, 10); }

static int hold(char **argv)
{
	struct sim_node *n = sim_write();
	if (!n)
		return fail(sim_path());
	struct sim_process *p = sim_add_process(n, getpid(), SIM_COMPUTE, instance(argv[0]), instance(argv[1]), instance(argv[2]));
	if (!p) {
		sim_abort();
		fprintf(stderr, "no room, or no such GPU\n");
		return 1;
	}
	p->memory = strtoull(argv[3], NULL, 10) << 20;
	p->load = (uint32_t)strtoul(argv[4], NULL, 10);
	sim_sample(n, p->gpu);
	sim_end();
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

static int tear(void)
{
	struct sim_node *n = sim_write();
	if (!n)
		return fail(sim_path());
	memset(n, 0xa5, sizeof *n);
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}

enum { CHILDREN = 4, COUNTS = 500 };

static int count(void)
{
	for (int i = 0; i < COUNTS; i++) {
		struct sim_node *n = sim_write();
		if (!n)
			return fail(sim_path());
		n->random++;
		sim_end();
	}
	return 0;
}

static int forked(void)
{
	const struct sim_node *n = sim_read(); /* the children inherit an open state */
	if (!n)
		return fail(sim_path());
	uint64_t before = n->random;
	sim_end();
	for (int i = 0; i < CHILDREN; i++)
		if (fork() == 0)
			_exit(count());
	int bad = count(), status;
	while (wait(&status) > 0)
		bad |= status;
	n = sim_read();
	bad |= !n || n->random != before + (CHILDREN + 1) * COUNTS;
	if (n)
		sim_end();
	return bad != 0;
}

static int set(char **argv)
{
	struct sim_node *n = sim_write();
	if (!n)
		return fail(sim_path());
	uint32_t i = instance(argv[0]), v = (uint32_t)strtoul(argv[2], NULL, 10);
	struct sim_gpu *g = i < n->gpu_count ? &n->gpu[i] : NULL;
	const struct { const char *name; uint32_t *at; } fields[] = { { "lost", g ? &g->lost : NULL }, { "hang", g ? &g->hang : NULL },
		{ "reset_blocked", g ? &g->reset_blocked : NULL }, { "compute_mode", g ? &g->compute_mode : NULL },
		{ "mig", g ? &g->mig_current : NULL } };
	for (unsigned f = 0; f < sizeof fields / sizeof fields[0]; f++)
		if (g && strcmp(fields[f].name, argv[1]) == 0) {
			*fields[f].at = v;
			if (fields[f].at == &g->mig_current)
				g->mig_pending = v;
			sim_end();
			return 0;
		}
	sim_abort();
	fprintf(stderr, "no GPU %s, or no field %s\n", argv[0], argv[1]);
	return 2;
}

static int check(void)
{
	const struct sim_node *n = sim_read();
	if (!n)
		return fail(sim_path());
	int bad = n->gpu_count > SIM_GPUS;
	for (uint32_t i = 0; i < n->gpu_count && !bad; i++) {
		uint32_t taken = 0, instances = 0;
		for (int k = 0; k < SIM_GIS; k++) {
			const struct sim_gi *gi = &n->gpu[i].gi[k];
			if (!gi->used)
				continue;
			uint32_t mask = ((1u << gi->size) - 1) << gi->start;
			bad |= (taken & mask) != 0 || !sim_model(n->gpu[i].model) || !sim_profile(sim_model(n->gpu[i].model), gi->profile);
			taken |= mask;
			instances++;
		}
		printf("%s %s instances %u\n", n->gpu[i].uuid, n->gpu[i].model, instances);
	}
	sim_end();
	return bad;
}

static int processes(void)
{
	const struct sim_node *n = sim_read();
	if (!n)
		return fail(sim_path());
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (n->process[i].used)
			printf("%d gpu %u %llu MiB\n", n->process[i].pid, n->process[i].gpu, (unsigned long long)n->process[i].memory >> 20);
	sim_end();
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	if (strcmp(verb, "make") == 0 && argc > 2)
		return make(argc - 2, argv + 2);
	if (strcmp(verb, "models") == 0)
		return models();
	if (strcmp(verb, "reserved") == 0)
		return reserved();
	if (strcmp(verb, "hold") == 0 && argc == 7)
		return hold(argv + 2);
	if (strcmp(verb, "tear") == 0)
		return tear();
	if (strcmp(verb, "fork") == 0)
		return forked();
	if (strcmp(verb, "set") == 0 && argc == 5)
		return set(argv + 2);
	if (strcmp(verb, "processes") == 0)
		return processes();
	if (strcmp(verb, "check") == 0)
		return check();
	fprintf(stderr, "simpoke make DRIVER MODEL… | models | reserved | hold GPU GI CI MIB LOAD | tear | fork | set GPU FIELD VALUE | processes | check\n");
	return 2;
}

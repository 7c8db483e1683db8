/* check.c: the program: finding a check, and what all checks use. */
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NEEDS_ROOT = 77, NOBODY = 65534 };

static const struct check *const all[] = { memory_checks, process_checks, utilisation_checks, accounting_checks, energy_checks,
	health_checks, gpm_checks, event_checks, fault_checks };

static int failed;

void expect(int holds, const char *text, const char *file, int line)
{
	if (holds)
		return;
	failed = 1;
	printf("%s:%d: does not hold: %s\n", file, line, text);
}

void gives(nvmlReturn_t want, nvmlReturn_t got, const char *text, const char *file, int line)
{
	if (want == got)
		return;
	failed = 1;
	printf("%s:%d: %s = %d (%s), want %d (%s)\n", file, line, text, got, nvmlErrorString(got), want, nvmlErrorString(want));
}

void equal(unsigned long long want, unsigned long long got, const char *text, const char *file, int line)
{
	if (want == got)
		return;
	failed = 1;
	printf("%s:%d: %s = %llu, want %llu\n", file, line, text, got, want);
}

static void give_up(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

void node(const char *driver, const char *models)
{
	static struct sim_node n;
	char words[256], *rest = words;
	sim_make_node(&n, driver);
	snprintf(words, sizeof words, "%s", models);
	for (char *w; (w = strsep(&rest, " ")); n.gpu_count++) {
		const struct sim_model *m = sim_model(w);
		if (!m)
			give_up(w);
		sim_make_gpu(&n.gpu[n.gpu_count], m, n.gpu_count, 1);
	}
	if (sim_create(&n) < 0)
		give_up(sim_path());
	done(edit()); /* the energy counters start now */
	OK(nvmlInit_v2());
}

nvmlDevice_t device(unsigned index)
{
	nvmlDevice_t d = NULL;
	OK(nvmlDeviceGetHandleByIndex_v2(index, &d));
	return d;
}

void need_root(void)
{
	if (geteuid() == 0)
		return;
	printf("needs root\n");
	exit(NEEDS_ROOT);
}

void unprivileged(void (*body)(void))
{
	if (geteuid() != 0) {
		body();
		return;
	}
	if (seteuid(NOBODY) < 0)
		give_up("seteuid");
	body();
	if (seteuid(0) < 0)
		give_up("seteuid");
}

struct sim_node *edit(void)
{
	struct sim_node *n = sim_write();
	if (!n)
		give_up(sim_path());
	sim_settle(n);
	return n;
}

void done(struct sim_node *n)
{
	for (uint32_t g = 0; g < n->gpu_count; g++)
		sim_sample(n, g);
	sim_end();
}

void later(int64_t us)
{
	struct sim_node *n = edit();
	n->clock_offset += us;
	sim_end();
}

struct sim_process *of(struct sim_node *n, pid_t pid)
{
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (n->process[i].used && n->process[i].pid == pid)
			return &n->process[i];
	static struct sim_process none;
	CHECK(!"a process is in the state");
	return &none;
}

static pid_t workers[SIM_ACCOUNTS + SIM_PROCESSES];
static unsigned worker_count;

static void end_all(void)
{
	for (unsigned i = 0; i < worker_count; i++)
		if (workers[i])
			kill(workers[i], SIGKILL);
	while (waitpid(-1, NULL, 0) > 0) /* leave nothing to init, which may be slow */
		;
}

pid_t worker(uint32_t kind, uint32_t gpu, uint32_t gi, uint32_t ci, unsigned mib, unsigned load)
{
	pid_t pid = fork();
	if (pid < 0)
		give_up("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	workers[worker_count++] = pid;
	struct sim_node *n = edit();
	struct sim_process *p = sim_add_process(n, pid, kind, gpu, gi, ci);
	if (!p)
		give_up("sim_add_process");
	p->memory = (uint64_t)mib << 20;
	p->load = load;
	done(n);
	return pid;
}

void end(pid_t pid)
{
	for (unsigned i = 0; i < worker_count; i++)
		if (workers[i] == pid)
			workers[i] = 0;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void mig(unsigned gpu)
{
	nvmlReturn_t status;
	OK(nvmlDeviceSetMigMode(device(gpu), NVML_DEVICE_MIG_ENABLE, &status));
	EQUAL(NVML_SUCCESS, status);
}

nvmlDevice_t instance(unsigned gpu, unsigned profile, unsigned start, unsigned *gi)
{
	unsigned index = 0;
	const struct sim_node *n = sim_read();
	const struct sim_profile *p = sim_profile(sim_model(n->gpu[gpu].model), profile);
	sim_end();
	nvmlGpuInstancePlacement_t place = { .start = start, .size = p->size };
	nvmlGpuInstance_t g;
	nvmlGpuInstanceInfo_t info;
	nvmlComputeInstance_t c;
	nvmlDevice_t d = NULL;
	OK(nvmlDeviceCreateGpuInstanceWithPlacement(device(gpu), profile, &place, &g));
	OK(nvmlGpuInstanceGetInfo(g, &info));
	nvmlComputeInstanceProfileInfo_t whole;
	unsigned kind = p->slices == 1 ? NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE : p->slices == 2 ? NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE :
		p->slices == 3 ? NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE : p->slices == 4 ? NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE :
		NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE;
	OK(nvmlGpuInstanceGetComputeInstanceProfileInfo(g, kind, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &whole));
	OK(nvmlGpuInstanceCreateComputeInstance(g, whole.id, &c));
	*gi = info.id;
	for (; index < 8; index++) {
		unsigned id = 0;
		nvmlDevice_t m;
		if (nvmlDeviceGetMigDeviceHandleByIndex(device(gpu), index, &m) == NVML_SUCCESS &&
		    nvmlDeviceGetGpuInstanceId(m, &id) == NVML_SUCCESS && id == *gi)
			d = m;
	}
	CHECK(d != NULL);
	return d;
}

void destroy(nvmlDevice_t mig_device)
{
	nvmlDevice_t parent;
	nvmlGpuInstance_t g;
	nvmlComputeInstance_t c;
	unsigned gi, ci;
	OK(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig_device, &parent));
	OK(nvmlDeviceGetGpuInstanceId(mig_device, &gi));
	OK(nvmlDeviceGetComputeInstanceId(mig_device, &ci));
	OK(nvmlDeviceGetGpuInstanceById(parent, gi, &g));
	OK(nvmlGpuInstanceGetComputeInstanceById(g, ci, &c));
	OK(nvmlComputeInstanceDestroy(c));
	OK(nvmlGpuInstanceDestroy(g));
}

/* scene makes MPS at work on GPU 0 of the node that is there, names its processes (server, two clients, an outsider),
 * and holds it until its input ends: for stock nvidia-smi and other clients. */
static int scene(void)
{
	pid_t server = worker(SIM_MPS_SERVER, 0, SIM_NONE, SIM_NONE, 28, 0), a = worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 500, 30);
	pid_t b = worker(SIM_MPS_CLIENT, 0, SIM_NONE, SIM_NONE, 300, 20), outside = worker(SIM_COMPUTE, 0, SIM_NONE, SIM_NONE, 100, 10);
	struct sim_node *n = edit();
	of(n, a)->server = of(n, b)->server = server;
	done(n);
	later(3000000); /* samples have come */
	printf("%d %d %d %d\n", server, a, b, outside);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

int main(int argc, char **argv)
{
	atexit(end_all);
	if (argc > 1 && strcmp(argv[1], "scene") == 0)
		return scene();
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		for (const struct check *c = all[i]; c->name; c++)
			if (argc < 2)
				printf("%s\t%s\n", c->name, c->evidence);
			else if (strcmp(argv[1], c->name) == 0) {
				c->run();
				return failed;
			}
	return argc > 1 ? 2 : 0;
}

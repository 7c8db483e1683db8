/* simgpu: makes, shows and troubles the simulated node. */
#include "ctl.h"

#include <errno.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void verb_make(int argc, char **argv);
static void verb_show(int argc, char **argv);
static void verb_models(int argc, char **argv);

static const struct verb {
	const char *name, *arguments, *help;
	int least, most; /* arguments */
	void (*run)(int argc, char **argv);
} verbs[] = {
	{ "make", "NODE.json|NODE.toml", "make the node, or make it anew: a recorded inventory, or {\"gpus\": [{\"model\": \"A100-40\"}]}", 1, 1, verb_make },
	{ "show", "[--json]", "GPUs, MIG devices, processes, MPS, and what is injected", 0, 1, verb_show },
	{ "models", "", "the GPU models there are", 0, 0, verb_models },
	{ "mode", "GPU MODE", "compute mode: default, exclusive-process, prohibited", 2, 2, verb_mode },
	{ "mig", "GPU on|off", "MIG mode; refused while processes run", 2, 2, verb_mig },
	{ "mig", "GPU create PROFILE[@START]…", "GPU instances, each with one compute instance", 3, 32, verb_mig },
	{ "mig", "GPU destroy", "all instances; refused while processes run in one", 2, 2, verb_mig },
	{ "process", "add PID GPU MIB [LOAD [GI CI]]", "put a living process on a GPU", 4, 7, verb_process },
	{ "process", "client PID GPU MIB [LOAD]", "the same as an MPS client of no server here", 4, 5, verb_process },
	{ "process", "rm PID", "take a process off all GPUs", 2, 2, verb_process },
	{ "xid", "GPU NUMBER [GI CI]", "an XID; with GI and CI in that MIG device", 2, 4, verb_xid },
	{ "lose", "GPU", "it falls off the bus: XID 79, GPU_IS_LOST", 1, 1, verb_lose },
	{ "restore", "GPU", "it is back", 1, 1, verb_restore },
	{ "ecc", "GPU corrected|uncorrected N", "ECC errors of memory; an uncorrected one is XID 48 and ends contexts", 3, 3, verb_ecc },
	{ "ecc", "GPU sram-corrected|sram-parity|sram-secded N", "ECC errors of SRAM", 3, 3, verb_ecc },
	{ "remap", "GPU correctable|uncorrectable|pending|failure N", "remapped rows, or retired pages before Ampere", 3, 3, verb_remap },
	{ "memory", "GPU unavailable|available", "NVML cannot tell memory", 2, 2, verb_memory },
	{ "hang", "GPU", "calls on this GPU do not come back", 1, 1, verb_hang },
	{ "hang", "GPU|any CALL", "only that call does not: nvmlDeviceGetMemoryInfo, nvmlDevice*, cuInit", 2, 2, verb_hang },
	{ "fail", "GPU|any CALL RESULT [TIMES]", "that call gives that NVML or CUDA result", 3, 4, verb_fail },
	{ "release", "GPU|any", "nothing hangs and nothing is planned to fail any more", 1, 1, verb_release },
	{ "set", "GPU power|temperature|sm-clock|memory-clock N|auto", "a reading (W, degrees, MHz) that no longer follows the load", 3, 3, verb_set },
	{ "set", "GPU throttle MASK", "why clocks are held back: bits of nvmlClocksEventReason…", 3, 3, verb_set },
	{ "set", "GPU unlisted MIB", "memory in use that NVML lists with no process", 3, 3, verb_set },
	{ "set", "GPU reset-blocked|sram-threshold yes|no", "the driver cannot reset it; its SRAM errors are too many", 3, 3, verb_set },
	{ "lists", "both|mps|compute", "in which of NVML's lists MPS clients stand", 1, 1, verb_lists },
	{ "stray", "yes|no", "utilisation samples with PID 0 and 0xFFFFFFFF among the true ones", 1, 1, verb_stray },
	{ "cgroups", "dmem|misc|off [MOUNT]", "how a driver of R615 counts memory by cgroup, and where cgroup v2 is mounted", 1, 2, verb_cgroups },
	{ "clock", "+SECONDS|-SECONDS|real", "the node's clock jumps", 1, 1, verb_clock },
	{ "driver", "missing|loaded", "no driver: nvmlInit says DRIVER_NOT_LOADED", 1, 1, verb_driver },
	{ "mps", "fault GPU", "the MPS server of that GPU goes to FAULT", 2, 2, verb_mps },
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static int editing;

void die(int status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "simgpu: ");
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	if (editing)
		sim_abort();
	exit(status);
}

__attribute__((noreturn)) static void no_state(void)
{
	int e = errno;
	die(1, "%s: %s; %s", sim_path(), strerror(e),
		e == ENOENT ? "simgpu make makes the node" : e == EPROTO ? "it is of another version: simgpu make makes it anew" : "is it yours?");
}

struct sim_node *edit(void)
{
	struct sim_node *n = sim_write();
	if (!n)
		no_state();
	editing = 1;
	return n;
}

const struct sim_node *look(void)
{
	const struct sim_node *n = sim_read();
	if (!n)
		no_state();
	editing = 1;
	return n;
}

uint64_t number_of(const char *what, const char *s, uint64_t most)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(s, &end, 10);
	if (*s < '0' || *s > '9' || *end || errno || n > most)
		die(2, "%s is a number from 0 to %llu, not %s", what, (unsigned long long)most, s);
	return n;
}

uint32_t gpu_of(const struct sim_node *n, const char *s)
{
	uint32_t found = SIM_NONE;
	if (*s >= '0' && *s <= '9') {
		found = (uint32_t)number_of("GPU", s, SIM_GPUS - 1);
		if (found >= n->gpu_count)
			die(2, "no GPU %s; the node has %u", s, n->gpu_count);
		return found;
	}
	for (uint32_t i = 0; i < n->gpu_count; i++)
		if (strncmp(n->gpu[i].uuid, s, strlen(s)) == 0) {
			if (found != SIM_NONE)
				die(2, "%s is the beginning of two UUIDs", s);
			found = i;
		}
	if (found == SIM_NONE)
		die(2, "no GPU %s; name it by its index or the beginning of its UUID", s);
	return found;
}

static void verb_make(int argc, char **argv)
{
	static struct sim_node n;
	char dir[4096];
	(void)argc;
	node_from_file(argv[0], &n);
	snprintf(dir, sizeof dir, "%s", sim_path());
	mkdir(dirname(dir), 0755); /* /run is empty after a boot */
	if (sim_create(&n) < 0)
		die(1, "%s: %s; choose another place with --state", sim_path(), strerror(errno));
	printf("%s: driver %s, %u GPU%s\n", sim_path(), n.driver, n.gpu_count, n.gpu_count == 1 ? "" : "s");
}

static void verb_show(int argc, char **argv)
{
	if (argc == 1 && strcmp(argv[0], "--json") != 0)
		die(2, "show takes --json, not %s", argv[0]);
	const struct sim_node *n = look();
	argc ? show_json(n) : show(n);
	sim_end();
}

static void verb_models(int argc, char **argv)
{
	static struct table t;
	(void)argc, (void)argv;
	table_row(&t, 6, "MODEL", "NAME", "MEMORY", "SMS", "CAPABILITY", "MIG PROFILES");
	for (uint32_t i = 0; i < sim_model_count; i++) {
		const struct sim_model *m = &sim_models[i];
		table_row(&t, 6, m->key, m->name, text("%llu MiB", (unsigned long long)m->memory_mib), text("%u", m->sm),
			text("%u.%u", m->cc_major, m->cc_minor), m->units ? text("%u", m->profile_count) : "");
	}
	table_print(&t, "");
}

static void help(FILE *to)
{
	static struct table t;
	fprintf(to, "simgpu makes, shows and troubles a simulated GPU node.\n\n  simgpu [--state FILE] VERB …\n\n");
	table_row(&t, 2, "VERB", "WHAT IT DOES");
	for (int i = 0; i < VERBS; i++)
		table_row(&t, 2, text("%s %s", verbs[i].name, verbs[i].arguments), verbs[i].help);
	if (to == stdout)
		table_print(&t, "");
	fprintf(to, "%sGPU is an index or the beginning of a UUID. The state is $GPUSLOT_SIM_STATE or %s.\n", to == stdout ? "\n" : "",
		SIM_STATE_PATH);
}

static void run(int argc, char **argv)
{
	int known = 0;
	for (int i = 0; i < VERBS; i++) {
		if (strcmp(verbs[i].name, argv[0]) != 0)
			continue;
		if (argc - 1 >= verbs[i].least && argc - 1 <= verbs[i].most) {
			verbs[i].run(argc - 1, argv + 1);
			return;
		}
		known = i + 1;
	}
	if (!known)
		die(2, "no verb %s; simgpu help lists them", argv[0]);
	die(2, "usage: simgpu %s %s", argv[0], verbs[known - 1].arguments);
}

int main(int argc, char **argv)
{
	argc--, argv++;
	if (argc >= 2 && strcmp(argv[0], "--state") == 0) {
		setenv("GPUSLOT_SIM_STATE", argv[1], 1);
		argc -= 2, argv += 2;
	}
	if (argc == 0) {
		help(stderr);
		return 2;
	}
	if (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0)
		help(stdout);
	else
		run(argc, argv);
	return 0;
}

/* set.c: readings that do not follow the load, and what differs from driver to driver. */
#include "ctl.h"

#include <stdlib.h>
#include <string.h>

/* A reading that is set stays until it is auto again. */
static uint64_t reading(const char *what, const char *s, uint64_t most, uint64_t unit)
{
	return strcmp(s, "auto") == 0 ? SIM_UNSET : number_of(what, s, most) * unit;
}

static uint32_t yes(const char *what, const char *s)
{
	if (strcmp(s, "yes") != 0 && strcmp(s, "no") != 0)
		die(2, "%s is yes or no, not %s", what, s);
	return *s == 'y';
}

void verb_set(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	struct sim_gpu *g = &n->gpu[gpu_of(n, argv[0])];
	const char *what = argv[1], *value = argv[2];
	sim_settle(n); /* energy up to now goes by the power up to now */
	if (strcmp(what, "power") == 0)
		g->power_set = reading("power in W", value, 2000, 1000);
	else if (strcmp(what, "temperature") == 0)
		g->temperature_set = reading("temperature", value, 150, 1);
	else if (strcmp(what, "sm-clock") == 0)
		g->clock_sm_set = reading("clock in MHz", value, 10000, 1);
	else if (strcmp(what, "memory-clock") == 0)
		g->clock_memory_set = reading("clock in MHz", value, 30000, 1);
	else if (strcmp(what, "throttle") == 0)
		g->throttle_reasons = number_of("mask of nvmlClocksEventReason… bits", value, 0xffff);
	else if (strcmp(what, "reset-blocked") == 0)
		g->reset_blocked = yes(what, value);
	else if (strcmp(what, "unlisted") == 0)
		g->unlisted = number_of("memory in MiB", value, 1 << 20) << 20;
	else if (strcmp(what, "sram-threshold") == 0)
		g->sram_threshold = yes(what, value);
	else
		die(2, "set power, temperature, sm-clock, memory-clock, throttle, unlisted, reset-blocked or sram-threshold, not %s", what);
	sim_end();
}

/* In which of NVML's lists MPS clients stand: both, mps, compute (seen in the field: nvidia-smi's "M+C", or one). */
void verb_lists(int argc, char **argv)
{
	static const char *const names[] = { "both", "mps", "compute" };
	(void)argc;
	struct sim_node *n = edit();
	for (uint32_t i = SIM_LIST_BOTH; i <= SIM_LIST_COMPUTE; i++)
		if (strcmp(names[i], argv[0]) == 0) {
			n->mps_lists = i;
			sim_end();
			return;
		}
	die(2, "MPS clients stand in both, mps or compute, not %s", argv[0]);
}

void verb_stray(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	n->stray_samples = yes("stray", argv[0]);
	sim_end();
}

/* How the driver counts memory by cgroup, and where cgroup v2 is mounted. */
void verb_cgroups(int argc, char **argv)
{
	static const char *const names[] = { "dmem", "misc", "off" };
	struct sim_node *n = edit();
	if (argc == 2 && (*argv[1] != '/' || strlen(argv[1]) >= sizeof n->cgroup_root))
		die(2, "the mount of cgroup v2 is a full path, not %s", argv[1]);
	for (uint32_t i = SIM_DMEM; i <= SIM_NO_ACCOUNTING; i++)
		if (strcmp(names[i], argv[0]) == 0) {
			n->accounting = i;
			if (argc == 2)
				strcpy(n->cgroup_root, argv[1]);
			sim_end();
			return;
		}
	die(2, "memory is counted by dmem, misc or off, not %s", argv[0]);
}

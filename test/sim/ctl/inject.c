/* inject.c: what goes wrong, and what puts it right again. Clients that run see it at their next call. */
#include "ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nvmlEventType…, of nvml.h. */
enum { EVENT_SINGLE_BIT = 1, EVENT_DOUBLE_BIT = 2, EVENT_XID = 8 };

static void xid(struct sim_node *n, uint32_t gpu, uint64_t number)
{
	sim_event(n, gpu, SIM_NONE, SIM_NONE, EVENT_XID, number);
	n->gpu[gpu].last_xid = (uint32_t)number;
}

void verb_xid(int argc, char **argv)
{
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[0]);
	uint64_t number = number_of("XID", argv[1], 999);
	if (argc == 4) /* inside a MIG device */
		sim_event(n, gpu, (uint32_t)number_of("GPU instance", argv[2], 15), (uint32_t)number_of("compute instance", argv[3], 7),
			EVENT_XID, number);
	else
		xid(n, gpu, number);
	n->gpu[gpu].last_xid = (uint32_t)number;
	sim_end();
}

/* "GPU has fallen off the bus" is XID 79. */
void verb_lose(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[0]);
	if (!n->gpu[gpu].lost)
		xid(n, gpu, 79);
	n->gpu[gpu].lost = 1;
	sim_end();
}

void verb_restore(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	n->gpu[gpu_of(n, argv[0])].lost = 0;
	sim_end();
}

static uint32_t any_gpu(const struct sim_node *n, const char *s) { return strcmp(s, "any") == 0 ? SIM_NONE : gpu_of(n, s); }

static void plan(struct sim_node *n, uint32_t gpu, const char *call, int32_t ret, uint32_t left)
{
	struct sim_fault *f = NULL;
	for (int i = 0; i < SIM_FAULTS && !f; i++)
		if (!n->fault[i].used)
			f = &n->fault[i];
	if (!f)
		die(1, "%d failures are planned already; simgpu release takes them out", SIM_FAULTS);
	if (strlen(call) >= sizeof f->call || (strncmp(call, "nvml", 4) != 0 && strncmp(call, "cu", 2) != 0))
		die(2, "%s is no name of a call; write one of NVML or CUDA, or its beginning and *", call);
	*f = (struct sim_fault){ .used = 1, .gpu = gpu, .ret = ret, .left = left };
	snprintf(f->call, sizeof f->call, "%s", call);
}

void verb_hang(int argc, char **argv)
{
	struct sim_node *n = edit();
	uint32_t gpu = any_gpu(n, argv[0]);
	if (argc == 2)
		plan(n, gpu, argv[1], SIM_HANG, SIM_NONE);
	else if (gpu == SIM_NONE)
		die(2, "a GPU hangs, or a call: simgpu hang any nvmlInit_v2");
	else
		n->gpu[gpu].hang = 1;
	sim_end();
}

void verb_fail(int argc, char **argv)
{
	struct sim_node *n = edit();
	uint32_t gpu = any_gpu(n, argv[0]);
	uint64_t times = argc == 4 ? number_of("times", argv[3], 1000000) : SIM_NONE;
	plan(n, gpu, argv[1], (int32_t)number_of("the result", argv[2], 999), (uint32_t)times);
	sim_end();
}

/* Everything that hangs or fails, of one GPU or of all. */
void verb_release(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	uint32_t gpu = any_gpu(n, argv[0]);
	for (uint32_t i = 0; i < n->gpu_count; i++)
		if (gpu == SIM_NONE || gpu == i)
			n->gpu[i].hang = 0;
	for (int i = 0; i < SIM_FAULTS; i++)
		if (gpu == SIM_NONE || n->fault[i].gpu == gpu)
			n->fault[i].used = 0;
	sim_end();
}

void verb_memory(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[0]), unavailable = strcmp(argv[1], "unavailable") == 0;
	if (!unavailable && strcmp(argv[1], "available") != 0)
		die(2, "memory is available or unavailable, not %s", argv[1]);
	n->gpu[gpu].memory_unavailable = unavailable;
	sim_end();
}

static int sram(struct sim_ecc *e, const char *kind, uint64_t count)
{
	uint64_t *at = strcmp(kind, "sram-corrected") == 0 ? &e->sram_corrected : strcmp(kind, "sram-parity") == 0 ? &e->sram_parity :
		strcmp(kind, "sram-secded") == 0 ? &e->sram_secded : NULL;
	if (at)
		*at += count;
	return at != NULL;
}

/* XID 48: double bit ECC error. Contexts that run meet CUDA_ERROR_ECC_UNCORRECTABLE. */
void verb_ecc(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[0]);
	struct sim_gpu *g = &n->gpu[gpu];
	uint64_t count = number_of("errors", argv[2], 1000000);
	if (strcmp(argv[1], "corrected") == 0) {
		g->ecc_volatile.corrected += count;
		g->ecc_aggregate.corrected += count;
		sim_event(n, gpu, SIM_NONE, SIM_NONE, EVENT_SINGLE_BIT, 0);
	} else if (strcmp(argv[1], "uncorrected") == 0) {
		g->ecc_volatile.uncorrected += count;
		g->ecc_aggregate.uncorrected += count;
		sim_event(n, gpu, SIM_NONE, SIM_NONE, EVENT_DOUBLE_BIT, 0);
		xid(n, gpu, 48);
	} else if (!sram(&g->ecc_volatile, argv[1], count) || !sram(&g->ecc_aggregate, argv[1], count))
		die(2, "an ECC error is corrected, uncorrected, sram-corrected, sram-parity or sram-secded, not %s", argv[1]);
	sim_end();
}

/* XIDs: 63 remapping or retirement recorded, 64 it failed. On GPUs before Ampere pages are retired instead. */
void verb_remap(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[0]);
	struct sim_gpu *g = &n->gpu[gpu];
	const struct sim_model *m = sim_model(g->model);
	int rows = m->cc_major >= 8;
	uint64_t count = number_of("rows", argv[2], 512);
	if (strcmp(argv[1], "correctable") == 0)
		*(rows ? &g->remap_correctable : &g->retired_single) += (uint32_t)count;
	else if (strcmp(argv[1], "uncorrectable") == 0)
		*(rows ? &g->remap_uncorrectable : &g->retired_double) += (uint32_t)count;
	else if (strcmp(argv[1], "pending") == 0)
		*(rows ? &g->remap_pending : &g->retired_pending) = count > 0;
	else if (strcmp(argv[1], "failure") == 0 && rows)
		g->remap_failure = count > 0;
	else
		die(2, "remap takes correctable, uncorrectable, pending%s, not %s", rows ? " or failure" : "", argv[1]);
	if (!rows)
		g->retired_at = sim_now(n);
	if (count > 0)
		xid(n, gpu, strcmp(argv[1], "failure") == 0 ? 64 : 63);
	sim_end();
}

static void set_modes(struct sim_gpu *g, uint32_t mode)
{
	if (!g->mig_current)
		g->compute_mode = mode;
	for (int i = 0; i < SIM_GIS; i++)
		for (int k = 0; k < SIM_CIS; k++)
			g->gi[i].ci[k].compute_mode = mode;
}

void verb_mode(int argc, char **argv)
{
	(void)argc;
	static const char *const names[] = { "default", "", "prohibited", "exclusive-process" };
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[0]);
	for (uint32_t i = 0; i < 4; i++)
		if (*names[i] && strcmp(names[i], argv[1]) == 0) {
			set_modes(&n->gpu[gpu], i);
			sim_end();
			return;
		}
	die(2, "a compute mode is default, exclusive-process or prohibited, not %s", argv[1]);
}

/* process add PID GPU MIB [LOAD [GI CI]] */
static void add_process(int argc, char **argv, uint32_t kind)
{
	struct sim_node *n = edit();
	pid_t pid = (pid_t)number_of("PID", argv[1], 1 << 22);
	uint32_t gpu = gpu_of(n, argv[2]), gi = SIM_NONE, ci = SIM_NONE;
	if (argc == 7) {
		gi = (uint32_t)number_of("GPU instance", argv[5], 15);
		ci = (uint32_t)number_of("compute instance", argv[6], 7);
	}
	struct sim_process *p = sim_find_process(n, pid, gpu, gi, ci);
	if (!p)
		p = sim_add_process(n, pid, kind, gpu, gi, ci);
	if (!p)
		die(1, "PID %d does not live, or the table of processes is full", (int)pid);
	sim_settle(n);
	p->memory = number_of("MiB", argv[3], 4 << 20) << 20;
	p->load = argc > 4 ? (uint32_t)number_of("load", argv[4], 100) : 0;
	sim_settle(n);
	sim_sample(n, gpu);
	sim_end();
}

void verb_process(int argc, char **argv)
{
	int found = 0;
	if (strcmp(argv[0], "add") == 0 && (argc == 4 || argc == 5 || argc == 7)) {
		add_process(argc, argv, SIM_COMPUTE);
		return;
	}
	if (strcmp(argv[0], "client") == 0 && (argc == 4 || argc == 5)) {
		add_process(argc, argv, SIM_MPS_CLIENT);
		return;
	}
	if (strcmp(argv[0], "rm") != 0 || argc != 2)
		die(2, "process add PID GPU MIB [LOAD [GI CI]], process client PID GPU MIB [LOAD], or process rm PID");
	struct sim_node *n = edit();
	int32_t pid = (int32_t)number_of("PID", argv[1], 1 << 22);
	for (int i = 0; i < SIM_PROCESSES; i++)
		if (n->process[i].used && n->process[i].pid == pid) {
			sim_drop_process(n, &n->process[i]);
			found = 1;
		}
	if (!found)
		die(1, "PID %d is on no GPU; simgpu show lists them", (int)pid);
	sim_end();
}

void verb_clock(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	const char *s = argv[0];
	if (strcmp(s, "real") == 0)
		n->clock_offset = 0;
	else if (*s == '+' || *s == '-')
		n->clock_offset += (*s == '-' ? -1000000 : 1000000) * (int64_t)number_of("seconds", s + 1, 1000000000);
	else
		die(2, "the clock jumps by +SECONDS or -SECONDS, or is real; not %s", s);
	sim_end();
}

void verb_driver(int argc, char **argv)
{
	(void)argc;
	struct sim_node *n = edit();
	if (strcmp(argv[0], "missing") != 0 && strcmp(argv[0], "loaded") != 0)
		die(2, "a driver is missing or loaded, not %s", argv[0]);
	n->driver_missing = strcmp(argv[0], "missing") == 0;
	sim_end();
}

/* The error that the clients of a faulted server meet: as after an illegal address in one of them. */
enum { ILLEGAL_ADDRESS = 700 };

/* mps fault GPU: every server that is on that GPU, whichever daemon started it. */
void verb_mps(int argc, char **argv)
{
	(void)argc;
	if (strcmp(argv[0], "fault") != 0)
		die(2, "simgpu mps fault GPU, not mps %s", argv[0]);
	struct sim_node *n = edit();
	uint32_t gpu = gpu_of(n, argv[1]);
	int found = 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (!p->used || p->kind != SIM_MPS_SERVER || p->gpu != gpu)
			continue;
		sim_mps_fault(n, p->pid, 0, gpu, ILLEGAL_ADDRESS);
		found = 1;
	}
	if (!found)
		die(1, "no MPS server on GPU %u; simgpu show lists them", gpu);
	xid(n, gpu, 31);
	sim_end();
}

/* main.c: the simulated nvidia-cuda-mps-control. Evidence for its words: run for real with 535, 550 and 555. */
#include "control.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../state/state.h"

/* GPUSLOT_SIM_DRIVER ("550", "550.163.01") wins over the state of the node. */
int driver_branch(void)
{
	const char *v = getenv("GPUSLOT_SIM_DRIVER");
	int branch = v && *v ? atoi(v) : 0;
	const struct sim_node *n = branch ? NULL : sim_read();
	if (n) {
		branch = (int)n->branch;
		sim_end();
	}
	return branch ? branch : 550;
}

static unsigned cuda_version(void)
{
	const struct sim_node *n = sim_read();
	unsigned cuda = n ? n->cuda : 13040;
	if (n)
		sim_end();
	return cuda;
}

static void banner(int version)
{
	printf("CUDA MPS Control for Linux/Unix.\nCopyright (C) 2003 - %d NVIDIA Corporation.\n\n"
		"  This program allows multiple CUDA processes to share a single GPU context. For information on how to use the "
		"CUDA MPS, see the nvidia-cuda-mps-control manual page.\n\n", version < 555 ? 2023 : 2024);
}

enum mode { COMMAND_LINE, BACKGROUND, FOREGROUND, HELP, VERSION, WRONG };

static int is(const char *arg, const char *one, const char *other) { return strcmp(arg, one) == 0 || strcmp(arg, other) == 0; }

/* R615: module verb arguments. */
static const char *joined(int count, char **words)
{
	static char line[WIRE_TEXT];
	size_t used = 0;
	for (int i = 0; i < count && used < sizeof line; i++)
		used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", i ? " " : "", words[i]);
	return line;
}

/* Up to 550 anything but one known flag means the command line; 555 takes flags in any order and knows wrong ones. */
static enum mode parse(int argc, char **argv, struct daemon *d)
{
	int version = d->version, *multiuser = &d->multiuser;
	enum mode mode = COMMAND_LINE;
	if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0))
		return HELP;
	if (version < 555)
		return argc != 2 ? COMMAND_LINE : strcmp(argv[1], "-d") == 0 ? BACKGROUND : strcmp(argv[1], "-f") == 0 ? FOREGROUND : COMMAND_LINE;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-d") == 0)
			mode = BACKGROUND;
		else if (strcmp(argv[i], "-f") == 0)
			mode = FOREGROUND;
		else if (strcmp(argv[i], "-multiuser-server") == 0)
			*multiuser = 1;
		else if (version >= 615 && is(argv[i], "-p", "--protocol") && i + 1 < argc && is(argv[i + 1], "2", "3"))
			d->protocol = *argv[++i] - '0';
		else if (version >= 615 && is(argv[i], "-a", "--apply") && i + 1 < argc)
			d->config = argv[++i];
		else if (version >= 615 && is(argv[i], "-m", "--multiuser"))
			*multiuser = 1;
		else if (version >= 615 && is(argv[i], "-v", "--version"))
			return VERSION;
		else if (version >= 615 && is(argv[i], "-q", "--quit"))
			d->words = "quit";
		else if (version >= 615 && *argv[i] != '-') {
			d->words = joined(argc - i, argv + i);
			return COMMAND_LINE;
		} else if (version >= 590 && is(argv[i], "-S", "--static-partitioning"))
			d->partitioning = 1; /* MPS documentation, R590 */
		else
			return WRONG;
	}
	return mode;
}

static const char *setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value && *value ? value : otherwise;
}

int main(int argc, char **argv)
{
	static struct daemon d = { .control = -1, .privileged = -1, .events = -1, .ui = -1, .percentage = 100, .protocol = 2,
		.server = { .fd = -1 } };
	d.version = driver_branch();
	d.log = setting("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps");
	signal(SIGPIPE, SIG_IGN);
	if (getenv("GPUSLOT_SIM_COMMANDS")) {
		command_table();
		return 0;
	}
	enum mode mode = parse(argc, argv, &d);
	if (mode == HELP || mode == WRONG) {
		banner(d.version);
		return mode == WRONG;
	}
	/* The variable wins over -p; a root daemon of v3 has its pipes in /run (MPS documentation, R615). */
	if (d.version >= 615 && atoi(setting("CUDA_MPS_PROTOCOL_VERSION", "0")))
		d.protocol = atoi(getenv("CUDA_MPS_PROTOCOL_VERSION"));
	d.pipe = setting("CUDA_MPS_PIPE_DIRECTORY", d.protocol == 3 && geteuid() == 0 ? "/run/nvidia-mps" : "/tmp/nvidia-mps");
	if (mode == VERSION) /* the form is that of the line in its log (threads): inferred */
		return printf("CUDA MPS Control binary version: %u\n", cuda_version()) < 0;
	if (mode == COMMAND_LINE)
		return command_line(d.pipe, d.words);
	if (d.multiuser && geteuid() != 0) {
		banner(d.version);
		puts("Only root user may enable -multiuser-server!");
		return 1;
	}
	if (sees_no_device())
		return 1;
	return daemon_run(&d, mode == BACKGROUND);
}

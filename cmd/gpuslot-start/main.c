/*
 * gpuslot-start: what every job on a GPU starts through, without the start of a Go program.
 *
 *   prepare ARGUMENT…    the PREPARE_JOB hook
 *   supervise COMMAND…   the USER_JOB_WRAPPER of shared GPUs
 *   gpuslot-start VERB [-socket PATH] [-timeout DURATION] [--] ARGUMENT…
 *
 * It does what most jobs need. Where a job needs more before it starts, this process becomes
 * gpuslot-condor (execv), which lies in the same directory and can do all that this program does.
 * A test runs the same scripts against both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "start.h"

/* become_go makes this process gpuslot-condor. It returns if that cannot be executed. */
static void become_go(char **args)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "gpuslot-condor");
	if (n <= 0)
		return;
	path[n] = 0;
	char *slash = strrchr(path, '/');
	if (slash == NULL)
		return;
	strcpy(slash + 1, "gpuslot-condor");
	execv(path, args);
}

/* go_instead lets gpuslot-condor do the whole work, with the arguments that we have got. */
static int go_instead(int argc, char **argv, const char *verb, int link)
{
	char **args = calloc((size_t)argc + 5, sizeof *args);
	if (args == NULL)
		return 1;
	int n = 0;
	args[n++] = "gpuslot-condor";
	if (link) {
		args[n++] = (char *)verb;
		args[n++] = "--"; /* all arguments are the job's */
	}
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	become_go(args);
	fprintf(stderr, "gpuslot-start: cannot execute gpuslot-condor: %s\n", strerror(errno));
	return 1;
}

/* read_patience reads "20s" or "50ms" for the hook. */
static int read_patience(const char *text)
{
	char *unit;
	long n = strtol(text, &unit, 10);
	if (n <= 0 || n > 100000 || (strcmp(unit, "s") != 0 && strcmp(unit, "ms") != 0))
		return -1;
	hook_patience = *unit == 's' ? n * 1000 : n;
	return 0;
}

int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *verb = argc > 0 ? (slash == NULL ? argv[0] : slash + 1) : "";
	int link = strcmp(verb, "supervise") == 0 || strcmp(verb, "prepare") == 0, at = 1, odd = 0;
	if (!link && argc > 1) {
		verb = argv[at++];
		while (at < argc && argv[at][0] == '-' && !odd) {
			if (strcmp(argv[at], "--") == 0) {
				at++;
				break;
			}
			odd = at + 1 >= argc;
			if (!odd && strcmp(argv[at], "-socket") == 0)
				socket_path = argv[at + 1];
			else
				odd = strcmp(argv[at], "-timeout") != 0 || read_patience(argv[at + 1]) != 0;
			at += 2;
		}
	}
	/* supervise writes in front of its command, so it gets a copy. */
	char **copy = calloc((size_t)argc + 2, sizeof *copy);
	int status = -1;
	if (copy != NULL && !odd) {
		if (argc > at)
			memcpy(copy + 1, argv + at, (size_t)(argc - at) * sizeof *copy);
		if (strcmp(verb, "supervise") == 0)
			status = supervise(copy + 1);
		else if (strcmp(verb, "prepare") == 0)
			status = prepare(copy + 1);
	}
	if (status >= 0)
		return status;
	return go_instead(argc, argv, verb, link);
}

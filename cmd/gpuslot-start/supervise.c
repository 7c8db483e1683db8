/* The USER_JOB_WRAPPER of shared GPUs: see gpuslot-condor's supervise. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "start.h"

extern char **environ;

/* How long the agent may take, in milliseconds: before the job's program gpuslot-condor asks again, and at
   the end the agent waits for a control daemon. How long a job that is to be held may outlive its
   program: the startd looks at its policy every POLLING_INTERVAL, 5 s by default. */
enum { start_patience = 2000, end_patience = 8000, hold_patience = 60000 };

/* Whether a job is supervised, and whether the driver keeps VRAM for it. */
struct started {
	int supervise, reserved;
};

/* read_whole reads a short file; -1 if it cannot be read or is longer. */
static int read_whole(const char *path, char *out, size_t size)
{
	int f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return -1;
	ssize_t n = read(f, out, size);
	close(f);
	if (n < 0 || (size_t)n >= size)
		return -1;
	out[n] = 0;
	return 0;
}

/* own_cgroup makes the path of this process's cgroup. It returns its length; -1 if it is not known. */
static int own_cgroup(char *out, size_t size)
{
	char text[4096];
	if (read_whole("/proc/self/cgroup", text, sizeof text) != 0)
		return -1;
	char *at = starts_with(text, "0::") ? text : strstr(text, "\n0::");
	if (at == NULL)
		return -1;
	at = strchr(at, ':') + 2;
	at[strcspn(at, "\n")] = 0;
	int n = snprintf(out, size, "/sys/fs/cgroup%s", at);
	return n > 0 && (size_t)n < size ? n : -1;
}

/* pass_on gives this cgroup the controllers by which the driver limits VRAM, where the slice has them: see
   gpuslot-condor's passOn. */
static void pass_on(void)
{
	static const char ends[][7] = { ".slice", ".scope" };
	enum { end = sizeof *ends - 1 };
	char slice[4096], path[4200], have[4096];
	char *leaf = own_cgroup(slice, sizeof slice) > 0 ? strrchr(slice, '/') : NULL;
	if (leaf == NULL)
		return;
	*leaf++ = 0;
	const char *name = strrchr(slice, '/');
	size_t n = strlen(leaf);
	if (name == NULL || n <= end || strlen(++name) != n || strncmp(name, leaf, n - end) != 0 ||
	    strcmp(name + n - end, ends[0]) != 0 || strcmp(leaf + n - end, ends[1]) != 0)
		return; /* HTCondor's up to 24.7, which gets its controllers from above */
	snprintf(path, sizeof path, "%s/cgroup.controllers", slice);
	if (read_whole(path, have, sizeof have) != 0)
		return;
	snprintf(path, sizeof path, "%s/cgroup.subtree_control", slice);
	int f = open(path, O_WRONLY | O_CLOEXEC);
	if (f < 0)
		return;
	for (char *c = strtok(have, " \n"); c != NULL; c = strtok(NULL, " \n"))
		if (strcmp(c, "dmem") == 0 || strcmp(c, "misc") == 0)
			dprintf(f, "+%s", c); /* the agent says what is missing */
	close(f);
}

/* start asks for the limits of this cgroup, where they have to be in force. It returns -1 where
   gpuslot-condor has to find out, and ask again. */
static int start(struct started *out)
{
	char path[4096], word[64], reply[256];
	const char *gpus = getenv("_CONDOR_AssignedGPUs");
	out->supervise = gpus != NULL && *gpus != 0 && strcmp(gpus, "10000") != 0;
	out->reserved = 0;
	if (beside(path, sizeof path, "condor/start") != 0)
		return -1;
	if (readlink(path, word, sizeof word) < 0)
		return errno == ENOENT ? 0 : -1;
	if (out->supervise)
		pass_on();
	if (ask("{\"v\":1,\"op\":\"start\"}\n", start_patience, reply, sizeof reply) != 0)
		return -1;
	static const struct {
		const char *text;
		struct started says;
	} known[] = {
		{ "{\"v\":1,\"started\":{}", { 0, 0 } },
		{ "{\"v\":1,\"started\":{\"supervise\":true}", { 1, 0 } },
		{ "{\"v\":1,\"started\":{\"supervise\":true,\"reserved\":true}", { 1, 1 } },
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		char next = starts_with(reply, known[i].text) ? reply[strlen(known[i].text)] : 0;
		if (next == '}' || next == ',') {
			*out = known[i].says;
			return 0;
		}
	}
	return -1;
}

/* find looks for a program as a shell does. It returns -1 where gpuslot-condor has to say why not. */
static int find(const char *name, char *out, size_t size)
{
	struct stat st;
	if (strchr(name, '/') != NULL) {
		if (strlen(name) >= size)
			return -1;
		strcpy(out, name);
		return stat(out, &st) == 0 && S_ISREG(st.st_mode) && access(out, X_OK) == 0 ? 0 : -1;
	}
	const char *dirs = getenv("PATH");
	for (const char *d = dirs; d != NULL && *name != 0; d = *d == ':' ? d + 1 : NULL) {
		size_t length = strcspn(d, ":");
		int n = snprintf(out, size, "%.*s/%s", (int)length, d, name);
		if (length > 0 && n > 0 && (size_t)n < size && stat(out, &st) == 0 && S_ISREG(st.st_mode) &&
		    access(out, X_OK) == 0)
			return 0;
		d += length;
	}
	return -1;
}

/* The prefixes under which containers hand a variable on, and where they look for binds. */
static const char *const containers[] = { "APPTAINERENV_", "SINGULARITYENV_" };
static const char *const binds[] = { "APPTAINER_BIND", "SINGULARITY_BIND" };

/* with_binds makes the job's environment such that containers which it starts get its pipe directory and
   its variables. It returns NULL where gpuslot-condor has to: the job or the site has variables for
   containers of its own. */
static char **with_binds(void)
{
	const char *bind = getenv("GPUSLOT_BIND");
	if (bind == NULL || *bind == 0)
		bind = getenv("CUDA_MPS_PIPE_DIRECTORY");
	if (bind == NULL || *bind == 0)
		return environ;
	size_t count = 0;
	for (char **e = environ; *e != NULL; e++, count++) {
		for (int i = 0; i < 2; i++) {
			size_t n = strlen(binds[i]);
			if (starts_with(*e, containers[i]) ||
			    (starts_with(*e, binds[i]) && (*e)[n] == '=' && strcmp(*e + n + 1, bind) != 0))
				return NULL;
		}
	}
	if (strchr(bind, ',') != NULL || strpbrk(bind, " \t\r\n") != NULL)
		return NULL;
	char **out = calloc(3 * count + 3, sizeof *out);
	if (out == NULL)
		return NULL;
	size_t n = 0;
	for (char **e = environ; *e != NULL; e++)
		if (!starts_with(*e, "APPTAINER_BIND=") && !starts_with(*e, "SINGULARITY_BIND="))
			out[n++] = *e;
	for (int i = 0; i < 2; i++)
		if (asprintf(&out[n++], "%s=%s", binds[i], bind) < 0)
			return NULL;
	for (char **e = environ; *e != NULL; e++)
		if (starts_with(*e, "CUDA_VISIBLE_DEVICES=") || starts_with(*e, "CUDA_MPS_") || starts_with(*e, "GPUSLOT_"))
			for (int i = 0; i < 2; i++)
				if (asprintf(&out[n++], "%s%s", containers[i], *e) < 0)
					return NULL;
	return out;
}

/* starts_container: the command is that of HTCondor's container universe, which gets more bound. */
static int starts_container(const char *command)
{
	const char *slash = strrchr(command, '/');
	const char *name = slash == NULL ? command : slash + 1;
	return strcmp(name, "apptainer") == 0 || strcmp(name, "singularity") == 0;
}

/* last_one says for certain that no other process is in this cgroup or below, so that no MPS client
   is left. A directory of cgroup v2 has a link for each cgroup below it. */
static int last_one(void)
{
	char path[4096], inside[64], own[32];
	struct stat st;
	int n = own_cgroup(path, sizeof path - sizeof "/cgroup.procs");
	if (n < 0)
		return 0;
	strcpy(path + n, "/cgroup.procs");
	if (read_whole(path, inside, sizeof inside) != 0)
		return 0;
	snprintf(own, sizeof own, "%d\n", getpid());
	path[n] = 0;
	return strcmp(inside, own) == 0 && stat(path, &st) == 0 && st.st_nlink == 2;
}

/* hold_due says whether HTCondor is to hold any job of this node, perhaps this one. */
static int hold_due(void)
{
	char path[4096];
	struct stat st;
	return beside(path, sizeof path, "condor/holds") != 0 || lstat(path, &st) == 0 || errno != ENOENT;
}

/* end_like ends this process as the job did. */
static int end_like(int status)
{
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	struct rlimit none = { 0, 0 };
	sigset_t only;
	int s = WTERMSIG(status);
	setrlimit(RLIMIT_CORE, &none); /* the job's core file, if any, is written */
	signal(s, SIG_DFL);
	sigemptyset(&only);
	sigaddset(&only, s);
	kill(getpid(), s);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	return 128 + s;
}

/* handles says whether a process catches or ignores a signal. What cannot be read does not. */
static int handles(pid_t job, int s)
{
	static const char *const masks[] = { "SigCgt:", "SigIgn:" };
	char path[64], status[8192];
	snprintf(path, sizeof path, "/proc/%d/status", job);
	if (read_whole(path, status, sizeof status) != 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		char *at = strstr(status, masks[i]);
		if (at != NULL && (strtoull(at + strlen(masks[i]), NULL, 16) >> (s - 1) & 1) != 0)
			return 1;
	}
	return 0;
}

/* end lets the slot's MPS clients leave. It returns why HTCondor is to hold the job, or NULL. Without
   an agent the job ends as it would have without us. */
static const char *end(void)
{
	static char reply[65536];
	if (ask("{\"v\":1,\"op\":\"end\"}\n", end_patience, reply, sizeof reply) != 0) {
		fprintf(stderr, "gpuslot-start: the job's MPS clients were not asked to leave: gpuslotd on %s: %s\n", socket_path,
			strerror(errno));
		return NULL;
	}
	if (!starts_with(reply, "{\"v\":1,") || strstr(reply, "\"ended\":{") == NULL) {
		fprintf(stderr, "gpuslot-start: the job's MPS clients were not asked to leave: gpuslotd says %s\n", reply);
		return NULL;
	}
	return value(reply, "wait");
}

/* ends: HTCondor sends it to end a job. */
static int ends(int s) { return s == SIGTERM || s == SIGQUIT || s == SIGINT; }

/* pass hands a signal on. One that would end the job waits for its MPS clients. */
static void pass(pid_t job, int s)
{
	switch (s) {
	case SIGPIPE:
		return; /* our own */
	case SIGCONT:
	case SIGWINCH:
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
		break;
	default:
		if (!handles(job, s))
			end();
	}
	kill(job, s); /* a job that has ended by then needs no signal */
}

/* linger ends what the job left running, and waits for a hold that is due: a program that meets error
   810 (its client was terminated) may end before it. Told: HTCondor's signal has come already. */
static void linger(const sigset_t *all, int told)
{
	struct timespec now, until, left;
	const char *wait = end();
	if (wait == NULL || told)
		return;
	fprintf(stderr, "gpuslot: %s\n", wait);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += hold_patience / 1000;
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		left.tv_sec = until.tv_sec - now.tv_sec;
		left.tv_nsec = 0;
		if (left.tv_sec <= 0)
			return;
		int s = sigtimedwait(all, NULL, &left);
		if (s > 0 && ends(s))
			return;
	}
}

/* follow passes signals on until the job ends, and ends like it. Every signal to this process is
   blocked, and taken here. The job's number is its own until this process has waited for it. */
static int follow(pid_t job, int reserved)
{
	sigset_t all;
	int told = 0;
	sigfillset(&all);
	for (;;) {
		int status, s = sigwaitinfo(&all, NULL);
		if (s == SIGCHLD) {
			pid_t ended = waitpid(job, &status, WNOHANG);
			if (ended == 0)
				continue;
			if (ended < 0)
				status = 1 << 8; /* its status is not known */
			if (reserved || !last_one() || hold_due())
				linger(&all, told);
			return end_like(status);
		}
		if (s > 0) {
			told = told || ends(s);
			pass(job, s);
		}
	}
}

/* launch starts a program as a child that has the signals which this process had. It returns the
   child's number; -1 if it cannot be executed. */
static pid_t launch(const char *path, char **command, char **env, const sigset_t *signals)
{
	volatile int failed = 0;
	pid_t job = vfork();
	if (job == 0) {
		sigprocmask(SIG_SETMASK, signals, NULL);
		execve(path, command, env);
		failed = 1; /* in the parent's memory, too */
		_exit(126);
	}
	if (job > 0 && failed) {
		waitpid(job, NULL, 0);
		return -1;
	}
	return job;
}

/* supervise becomes the job, or runs it as a child. It returns -1 where gpuslot-condor has to. */
int supervise(char **command)
{
	char path[4096], site[4096], link[4096];
	struct started is;
	if (command[0] == NULL || starts_container(command[0]) || beside(link, sizeof link, "condor/job-wrapper") != 0)
		return -1;
	ssize_t n = readlink(link, site, sizeof site - 1);
	if (n > 0) { /* the job wrapper that the site had before */
		site[n] = 0;
		command--; /* what is there was read already */
		command[0] = site;
	}
	char **env = with_binds();
	if (env == NULL || find(command[0], path, sizeof path) != 0 || start(&is) != 0)
		return -1;
	if (!is.supervise) {
		execve(path, command, environ);
		return -1;
	}
	sigset_t all, before;
	sigfillset(&all);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would take the job's status away */
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t job = launch(path, command, env, &before);
	if (job > 0)
		return follow(job, is.reserved);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return -1;
}

/* daemon.c: the control daemon's files, sockets and loop.
 *
 * One thread serves everybody and waits for each caller without a deadline, so whoever connects and says nothing
 * stalls it (measured). Signals have their default effect: it dies at once and cleans nothing up. */
#include "v3.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int child_pipe[2] = { -1, -1 };
static int lock_fd = -1, fifo = -1;

uint64_t milliseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static const char *path_in(const struct daemon *d, const char *name)
{
	static char path[4096];
	snprintf(path, sizeof path, "%s/%s", d->pipe, name);
	return path;
}

/* 0666 whatever the umask is, and never truncated: a longer number before leaves its tail. */
static int open_shared(const char *path)
{
	mode_t before = umask(0);
	int fd = open(path, O_WRONLY | O_CREAT, 0666);
	umask(before);
	return fd;
}

/* One level only, 0777. */
static int take_directory(struct daemon *d)
{
	mode_t before = umask(0);
	int made = mkdir(d->pipe, 0777);
	umask(before);
	struct stat st;
	if ((made != 0 && errno != EEXIST) || stat(d->pipe, &st) != 0 || !S_ISDIR(st.st_mode) || (lock_fd = open_shared(path_in(d, "control_lock"))) < 0) {
		printf("Cannot access CUDA_MPS_PIPE_DIRECTORY=%s\n", d->pipe);
		return -1;
	}
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	if (fcntl(lock_fd, F_SETLK, &l) != 0) {
		puts("An instance of this daemon is already running");
		return -1;
	}
	return 0;
}

static int take_log(struct daemon *d, int background)
{
	if (mkdir(d->log, 0700) != 0 && errno != EEXIST)
		return -1;
	if (access(d->log, R_OK | W_OK) != 0)
		return -1;
	return background ? 0 : 1;
}

static void start_log(struct daemon *d, int foreground)
{
	char path[4096];
	snprintf(path, sizeof path, "%s", path_in(d, "log"));
	if (recorder_open(d->log, foreground) != 0)
		return;
	if (mkfifo(path, 0777) != 0 && errno != EEXIST)
		return;
	chmod(path, 0777);
	if ((fifo = open(path, O_RDWR | O_CLOEXEC)) < 0)
		return;
	recorder_start(fifo);
	log_open(d->pipe);
}

int daemon_listen(const char *directory, const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	if (snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", directory, name) >= (int)sizeof a.sun_path - 1)
		return -1; /* from 88 bytes on: no word about it */
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlink(a.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 128) != 0)
		return -1;
	return fd;
}

static int start_sockets(struct daemon *d)
{
	if ((d->privileged = daemon_listen(d->pipe, "control_privileged")) < 0 || (d->control = daemon_listen(d->pipe, "control")) < 0)
		return -1;
	chmod(path_in(d, "control"), 0666);
	if (d->version < 550)
		return 0;
	int fd = open_shared(path_in(d, "nvidia-cuda-mps-control.pid"));
	if (fd < 0 || dprintf(fd, "%d", (int)getpid()) < 0)
		control_log("Failed to create control pid file %s/%s", d->pipe, "nvidia-cuda-mps-control.pid");
	if (fd >= 0)
		close(fd);
	return 0;
}

static void on_child(int signal)
{
	(void)signal;
	int before = errno;
	if (write(child_pipe[1], "", 1) < 0)
		errno = before; /* full: it will be looked at anyway */
	errno = before;
}

static int watch_children(struct daemon *d)
{
	struct sigaction a = { .sa_handler = on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP };
	if (pipe2(child_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
		return -1;
	d->events = child_pipe[0];
	return sigaction(SIGCHLD, &a, NULL);
}

/* The settings of the environment; what is out of range is ignored. */
static void read_settings(struct daemon *d)
{
	const char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), *priority = getenv("CUDA_MPS_CLIENT_PRIORITY");
	double p = percentage ? strtod(percentage, NULL) : 100;
	long n = priority ? strtol(priority, NULL, 10) : 0;
	if (p > 0 && p <= 100)
		d->percentage = p;
	if (n == 0 || n == 1)
		d->priority = (uint32_t)n;
}

static int start(struct daemon *d, int background)
{
	int logging = take_log(d, background);
	if (logging < 0)
		printf("Warning: Failed writing log files to directory [%s]. No logs will be available.\n", d->log);
	if (take_directory(d) != 0 || watch_children(d) != 0)
		return -1;
	if (logging >= 0 || !background)
		start_log(d, !background);
	read_settings(d);
	control_log("Starting control daemon using socket %s/control", d->pipe);
	control_log("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", d->pipe);
	return start_sockets(d);
}

void daemon_close_ui(struct daemon *d, int status)
{
	uint32_t m[2] = { 1, (uint32_t)status };
	wire_send(d->ui, m, sizeof m);
	close(d->ui);
	d->ui = -1;
}

/* The end of quit: sockets and lock stay, FIFO and pid file go. */
static int leave(struct daemon *d)
{
	int status = d->failed;
	if (d->version >= 550)
		unlink(path_in(d, "nvidia-cuda-mps-control.pid"));
	close(d->control);
	close(d->privileged);
	if (d->ui >= 0)
		daemon_close_ui(d, status);
	control_log("Exit with status %d", status);
	log_end();
	recorder_join();
	if (fifo >= 0)
		unlink(path_in(d, "log"));
	return status;
}

static void new_ui(struct daemon *d, int fd, uid_t uid)
{
	if (d->ui >= 0) { /* one at a time: the second one sees its connection close */
		close(fd);
		return;
	}
	d->ui = fd;
	d->ui_uid = uid;
	control_log("NEW UI");
}

static void new_connection(struct daemon *d, int listener, int fd, const struct ucred *from)
{
	uint32_t kind;
	if (wire_receive(fd, &kind, sizeof kind) != 0) {
		control_log("Unable to read new connection type information");
		close(fd);
		return;
	}
	if (d->protocol == 3 && (kind == WIRE_SERVER || kind == WIRE_CLIENT)) {
		v3_connection(d, listener, fd, kind, from);
		return;
	}
	switch (kind) {
	case WIRE_UI: new_ui(d, fd, from->uid); return;
	case WIRE_SERVER: server_ready(d, fd, from->pid); return;
	case WIRE_CLIENT: server_client(d, fd, from->pid, from->uid, 0); return;
	case WIRE_DEBUGGEE: control_log("NEW DEBUGGEE %d from user %u", from->pid, from->uid); break;
	case WIRE_FATAL: control_log("Server encountered a fatal exception. Shutting down\n"); break;
	default: control_log("Unknown type of connection"); return; /* and stays open */
	}
	close(fd);
}

static void accept_from(struct daemon *d, int listener)
{
	struct ucred from;
	char word[9];
	int on = 1;
	control_log("Accepting connection...");
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	if (fd < 0 || wire_send(fd, "OUTBHELL", 9) != 0 || wire_receive_any(fd, word, sizeof word, &from, NULL) != (ssize_t)sizeof word) {
		control_log("Unable to accept connection");
	} else if (memcmp(word, "OUTBCRED", 9) != 0 || from.pid == 0) {
		control_log("User did not send valid credentials");
	} else if (listener == d->privileged && from.uid != 0 && from.uid != geteuid()) {
		control_log("Unable to accept priviliged connection from other user");
	} else {
		new_connection(d, listener, fd, &from);
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void hear_ui(struct daemon *d)
{
	static char line[1 << 16];
	uint64_t size;
	if (wire_receive(d->ui, &size, sizeof size) != 0) {
		close(d->ui);
		d->ui = -1;
		control_log("UI closed");
	} else if (size == 0 && d->quitting) {
		return; /* whoever asks while it quits waits for the end, too */
	} else if (size == 0) {
		daemon_close_ui(d, d->status);
		control_log("UI closed");
	} else {
		ssize_t n = wire_receive_any(d->ui, line, sizeof line - 1, NULL, NULL);
		line[n > 0 ? n : 0] = 0;
		command(d, line);
	}
}

/* v3 with -f ends when its standard input does (kai-gpu-fractioning's supervisor holds it open for that). */
static void hear_input(struct daemon *d)
{
	char drain[64];
	if (read(0, drain, sizeof drain) <= 0) {
		d->foreground = 0;
		v3_quit(d);
	}
}

static void serve(struct daemon *d)
{
	enum { OWN = 5 };
	int more[V3_LISTENERS], count = v3_listeners(d, more);
	struct pollfd p[OWN + V3_LISTENERS] = { { d->control, POLLIN, 0 }, { d->privileged, POLLIN, 0 }, { d->events, POLLIN, 0 },
		{ d->ui, POLLIN, 0 }, { d->protocol == 3 && d->foreground ? 0 : -1, POLLIN, 0 } };
	for (int i = 0; i < count; i++)
		p[OWN + i] = (struct pollfd){ more[i], POLLIN, 0 };
	if (poll(p, (nfds_t)(OWN + count), server_timeout(d)) < 0 && errno != EINTR)
		return;
	if (p[2].revents)
		server_reap(d);
	server_tick(d);
	if (d->quitting && !d->server.pid && !v3_running(d))
		return;
	if (p[0].revents)
		accept_from(d, d->control);
	if (p[1].revents)
		accept_from(d, d->privileged);
	if (p[3].revents && d->ui >= 0)
		hear_ui(d);
	if (p[4].revents)
		hear_input(d);
	for (int i = 0; i < count; i++)
		if (p[OWN + i].revents && v3_is_listener(d, more[i]))
			accept_from(d, more[i]);
}

/* The parent waits until the sockets listen; the daemon says so with one byte. */
static int detach(int *tell)
{
	int p[2];
	char byte;
	if (pipe2(p, O_CLOEXEC) != 0)
		return 1;
	fflush(stdout);
	pid_t child = fork();
	if (child != 0) {
		close(p[1]);
		return child < 0 || read(p[0], &byte, 1) != 1;
	}
	close(p[0]);
	*tell = p[1];
	if (fork() != 0)
		_exit(0);
	setsid();
	return -1;
}

static void silence(void)
{
	int null = open("/dev/null", O_RDWR);
	fflush(stdout);
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
} /* the working directory stays: a relative pipe directory works */

int daemon_run(struct daemon *d, int background)
{
	int tell = -1, rc = background ? detach(&tell) : -1;
	if (rc >= 0)
		return rc; /* the parent */
	if (start(d, background) != 0) {
		fflush(stdout);
		return 1;
	}
	publish(d);
	d->foreground = !background;
	if (d->protocol == 3 && v3_start(d) != 0) {
		fflush(stdout);
		return 1;
	}
	if (background)
		silence();
	if (tell >= 0 && write(tell, "", 1) == 1)
		close(tell);
	while (!d->quitting || d->server.pid || v3_running(d))
		serve(d);
	return leave(d);
}

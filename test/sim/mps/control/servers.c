/* servers.c: the life of the one server, and who waits for another account's.
 *
 * Run for real with programs in the server's place: 535 tells a ready server once to go, and it takes no client any
 * more; 550 and 555 ask it, go on handing it clients of its account while it has some, and ask again after 200 ms,
 * 400 ms and so on. Six failed starts in a row, and everybody who waits is sent away. */
#include "v3.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_DELAY = 200, LAST_DELAY = 60000 };

static void exec_server(const struct daemon *d, uid_t uid)
{
	if (d->version >= 550)
		control_log("Starting new server %d for user %d", (int)getpid(), (int)uid);
	/* group and supplementary groups stay the daemon's (measured); 535 does not look whether it worked */
	if (setuid(uid) != 0 && d->version >= 550) {
		control_log(d->version >= 555 ? "Failed to start server using uid %d, error: %s" : "Failed to start server using uid %d. %s",
			(int)uid, strerror(errno));
		_exit(1);
	}
	if (d->named)
		v3_environment(d->named);
	if (d->multiuser)
		execlp("nvidia-cuda-mps-server", "nvidia-cuda-mps-server", "-multiuser-server", (char *)NULL);
	else
		execlp("nvidia-cuda-mps-server", "nvidia-cuda-mps-server", (char *)NULL);
	_exit(1); /* not on PATH: nothing says so but the exit status */
}

void server_start(struct daemon *d, uid_t uid)
{
	if (d->multiuser)
		uid = 0;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		exec_server(d, uid);
	if (pid < 0)
		return;
	d->server = (struct server){ .pid = pid, .uid = uid, .fd = -1 };
	if (d->version < 550)
		control_log("Starting new server %d for user %d", (int)pid, (int)uid);
}

static int serves(const struct daemon *d, uid_t uid) { return d->server.pid && (d->multiuser || d->server.uid == uid); }

/* Both ends of a new socket pair go out: one to the server, one to the client, which then speak without the daemon. */
static void hand_over(struct daemon *d, int client, int space)
{
	uint32_t word = WIRE_TAKE_CLIENT;
	int pair[2];
	if (d->named)
		v3_settings(d->named, space);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		if (wire_send(d->server.fd, &word, sizeof word) == 0 && wire_pass(d->server.fd, pair[1]) == 0)
			wire_pass(client, pair[0]);
		close(pair[0]);
		close(pair[1]);
	}
	close(client);
}

static void wait_for_server(struct daemon *d, pid_t pid, uid_t uid, int fd, int space)
{
	if (d->waiting < PENDING)
		d->pending[d->waiting++] = (struct pending){ pid, uid, fd, space };
	else if (fd >= 0)
		close(fd);
}

static void drop_pending(struct daemon *d)
{
	for (int i = 0; i < d->waiting; i++)
		if (d->pending[i].fd >= 0)
			close(d->pending[i].fd);
	d->waiting = 0;
}

/* Asks a ready server to go. */
static void ask_to_go(struct daemon *d, int last)
{
	struct server *s = &d->server;
	uint32_t clients = 0;
	if (d->version >= 550)
		control_log("Try shutting down server %d, backoff is %s", (int)s->pid, s->delay && !last ? "enabled" : "disabled");
	if (ask_shutdown(d, &clients) != 0 || clients == 0) {
		s->closing = 1;
		return;
	}
	control_log("Server %d has %u active worker threads. Server will not shutdown.", (int)s->pid, clients);
	if (last)
		return;
	s->delay = s->delay ? s->delay * 2 : FIRST_DELAY;
	if (s->delay > LAST_DELAY)
		s->delay = LAST_DELAY;
	s->retry_at = milliseconds() + s->delay;
	control_log("Control will try shutting down server %d again in at most %ums", (int)s->pid, s->delay);
}

static void has_to_go(struct daemon *d)
{
	struct server *s = &d->server;
	int first = !s->unwanted;
	s->unwanted = 1;
	if (s->ready && !s->closing && first)
		ask_to_go(d, 0);
}

/* One SIGINT, once; whether it ends is its own affair. */
static void force(struct daemon *d)
{
	struct server *s = &d->server;
	if (s->ready && !s->closing && d->version >= 550)
		ask_to_go(d, 1);
	if (d->version >= 550)
		control_log("Force shutting down server %d", (int)s->pid);
	kill(s->pid, SIGINT);
}

void server_shutdown(struct daemon *d, int forced)
{
	if (forced)
		force(d);
	else
		has_to_go(d);
}

void server_ready(struct daemon *d, int fd, pid_t pid)
{
	struct server *s = &d->server;
	uint32_t word;
	if (s->pid != pid) {
		control_log("NEW SERVER %d: Ignoring old connection request", (int)pid);
		close(fd);
		return;
	}
	control_log("NEW SERVER %d: Ready", (int)pid);
	uint64_t devices = WIRE_DEVICES;
	int bad = wire_receive(fd, &word, sizeof word) || wire_send(fd, &d->percentage, sizeof d->percentage) ||
		wire_send(fd, &devices, sizeof devices);
	for (int i = 0; i < WIRE_DEVICES && !bad; i++) {
		uint64_t limit = default_limit(d, i);
		bad = wire_send(fd, &limit, sizeof limit);
	}
	if (bad || wire_send(fd, &d->priority, sizeof d->priority)) {
		close(fd);
		return;
	}
	s->fd = fd;
	s->ready = 1;
	d->tries = 0;
	int rest = 0;
	for (int i = 0; i < d->waiting; i++) {
		struct pending p = d->pending[i];
		if (!serves(d, p.uid))
			d->pending[rest++] = p;
		else if (p.fd >= 0)
			hand_over(d, p.fd, p.space);
	}
	d->waiting = rest;
	if (rest || s->unwanted || d->quitting) {
		s->unwanted = 0;
		has_to_go(d);
	}
}

void server_client(struct daemon *d, int fd, pid_t pid, uid_t uid, int space)
{
	struct server *s = &d->server;
	if (serves(d, uid) && s->ready && !s->closing) {
		control_log("NEW CLIENT %d from user %u: Server already exists", (int)pid, (unsigned)uid);
		hand_over(d, fd, space);
		return;
	}
	control_log("NEW CLIENT %d from user %u: Server is not ready, push client to pending list", (int)pid, (unsigned)uid);
	wait_for_server(d, pid, uid, fd, space);
	if (!s->pid && !d->quitting)
		server_start(d, uid);
	else if (!serves(d, uid))
		has_to_go(d);
}

void server_want(struct daemon *d, uid_t uid)
{
	if (!d->server.pid) {
		server_start(d, uid);
	} else if (!serves(d, uid)) {
		wait_for_server(d, 0, uid, -1, 0);
		has_to_go(d);
	}
}

/* First come, first served, but the account whose server has ended goes before all others. */
static uid_t next_account(const struct daemon *d, uid_t last)
{
	for (int i = 0; i < d->waiting; i++)
		if (d->pending[i].uid == last)
			return last;
	return d->pending[0].uid;
}

/* Death by signal counts as status 0. */
void server_ended(struct daemon *d, pid_t pid, int how)
{
	int status = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
	control_log("Server %d exited with status %d", (int)pid, status);
	control_log("Removed Shm file at ");
	if (d->server.pid != pid)
		return;
	if (d->server.fd >= 0)
		close(d->server.fd);
	if (status)
		d->failed = status;
	d->tries = d->server.ready ? 0 : d->tries + 1;
	uid_t last = d->server.uid;
	d->server = (struct server){ .fd = -1 };
	if (d->tries >= TRIES || d->quitting || d->named) /* a named server that ends is gone (Dynamo guide, R615) */
		drop_pending(d);
	if (d->waiting)
		server_start(d, next_account(d, last));
	else
		d->tries = 0;
}

void server_reap(struct daemon *d)
{
	char drain[64];
	int how;
	pid_t pid;
	while (read(d->events, drain, sizeof drain) > 0)
		;
	while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
		d->protocol == 3 ? v3_ended(pid, how) : server_ended(d, pid, how);
}

void server_tick(struct daemon *d)
{
	struct server *s = &d->server;
	uint64_t now = milliseconds();
	if (s->retry_at && now >= s->retry_at && s->ready && !s->closing) {
		s->retry_at = 0;
		ask_to_go(d, 0);
	}
	if (d->force_at && now >= d->force_at && s->pid) {
		d->force_at = 0;
		force(d);
	}
}

int server_timeout(const struct daemon *d)
{
	uint64_t next = d->server.retry_at;
	if (d->force_at && (!next || d->force_at < next))
		next = d->force_at;
	uint64_t now = milliseconds();
	return !next ? -1 : next <= now ? 0 : (int)(next - now);
}

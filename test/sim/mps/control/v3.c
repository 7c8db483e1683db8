/* v3.c: named servers and their namespaces: directories, sockets, processes. */
#include "v3.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../state/state.h"
#include "../welcome.h"

static struct named servers[V3_SERVERS];

struct named *v3_servers(void) { return servers; }

struct named *v3_server(const char *name)
{
	for (int i = 0; i < V3_SERVERS; i++)
		if (servers[i].used && strcmp(servers[i].name, name) == 0)
			return &servers[i];
	return NULL;
}

struct space *v3_space(struct named *n, const char *name)
{
	for (int i = 0; i < V3_SPACES; i++)
		if (n->space[i].used && strcmp(n->space[i].name, name) == 0)
			return &n->space[i];
	return NULL;
}

static int listen_in(const char *directory)
{
	char path[256];
	mkdir(directory, 0755);
	int fd = daemon_listen(directory, "control");
	snprintf(path, sizeof path, "%s/control", directory);
	if (fd >= 0)
		chmod(path, 0666);
	return fd;
}

struct space *v3_create_space(struct named *n, const char *name, const char **why)
{
	struct space *s = NULL;
	char directory[400];
	for (int i = 0; i < V3_SPACES && !s; i++)
		s = n->space[i].used ? NULL : &n->space[i];
	*why = v3_space(n, name) ? "it exists" : !s ? "there is no room for more" : NULL;
	if (*why || v3_name(name, why) != 0)
		return NULL;
	snprintf(directory, sizeof directory, "%s/%s", n->pipe, name);
	*s = (struct space){ .used = 1, .priority = -1, .listener = listen_in(directory) };
	snprintf(s->name, sizeof s->name, "%s", name);
	if (s->listener >= 0)
		return s;
	s->used = 0;
	*why = "its pipe directory cannot be used";
	return NULL;
}

static void hang_up(const char *directory, int *listener)
{
	char path[512];
	if (*listener >= 0)
		close(*listener);
	*listener = -1;
	snprintf(path, sizeof path, "%s/control", directory);
	unlink(path);
	rmdir(directory);
}

void v3_delete_space(struct named *n, struct space *s)
{
	char directory[400];
	snprintf(directory, sizeof directory, "%s/%s", n->pipe, s->name);
	hang_up(directory, &s->listener);
	s->used = 0;
}

static void open_log(const struct named *n)
{
	char path[256];
	snprintf(path, sizeof path, "%s/log", n->pipe);
	if (mkfifo(path, 0777) != 0 && errno != EEXIST)
		return;
	chmod(path, 0777);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		recorder_server(n->d.log, n->name, fd);
}

struct named *v3_create(struct daemon *d, const char *name, uid_t uid, const char *allowed, const char **why)
{
	struct named *n = NULL;
	for (int i = 0; i < V3_SERVERS && !n; i++)
		n = servers[i].used ? NULL : &servers[i];
	*why = v3_server(name) ? "it exists" : !n ? "there is no room for more" : NULL;
	if (*why || v3_name(name, why) != 0)
		return NULL;
	*n = (struct named){ .used = 1 };
	snprintf(n->name, sizeof n->name, "%s", name);
	snprintf(n->allowed, sizeof n->allowed, "%s", allowed);
	snprintf(n->pipe, sizeof n->pipe, "%s/%s", d->pipe, name);
	n->d = (struct daemon){ .version = d->version, .multiuser = d->multiuser, .protocol = 3, .named = n, .pipe = n->pipe, .log = d->log, .foreground = d->foreground,
		.control = -1, .privileged = -1, .events = -1, .ui = -1, .percentage = 100, .server = { .fd = -1 } };
	if ((n->listener = listen_in(n->pipe)) < 0 || !v3_create_space(n, "default", why)) {
		*why = "its pipe directory cannot be used";
		n->used = 0;
		return NULL;
	}
	open_log(n);
	server_start(&n->d, uid);
	return n;
}

int v3_clients(const struct named *n, int space)
{
	int count = 0;
	const struct sim_node *node = sim_read();
	for (int i = 0; node && i < SIM_CLIENTS; i++) {
		const struct sim_mps_client *c = &node->mps_client[i];
		for (unsigned k = 0; c->used && c->server == n->d.server.pid && k < V3_GUESTS; k++)
			if (n->guest[k].pid == c->pid && (space < 0 || n->guest[k].space == space)) {
				count++;
				break;
			}
	}
	if (node)
		sim_end();
	return count;
}

/* Its clients are terminated first; then the server is told to end. */
void v3_delete(struct named *n, int force)
{
	uint32_t result;
	for (unsigned i = 0; force && n->d.server.fd >= 0 && i < V3_GUESTS; i++)
		if (n->guest[i].pid)
			ask_terminate(&n->d, (uint32_t)n->guest[i].pid, &result);
	n->leaving = 1;
	kill(n->d.server.pid, SIGINT);
}

static void drop(struct named *n)
{
	char path[256];
	for (int i = 0; i < V3_SPACES; i++)
		if (n->space[i].used)
			v3_delete_space(n, &n->space[i]);
	snprintf(path, sizeof path, "%s/log", n->pipe);
	unlink(path);
	hang_up(n->pipe, &n->listener);
	n->used = 0;
}

/* A server that ends disappears, and its sockets with it: whoever points there runs without MPS and without limits. */
void v3_ended(pid_t server, int how)
{
	for (int i = 0; i < V3_SERVERS; i++)
		if (servers[i].used && servers[i].d.server.pid == server) {
			server_ended(&servers[i].d, server, how);
			drop(&servers[i]);
		}
}

int v3_running(const struct daemon *d)
{
	for (int i = 0; d->protocol == 3 && i < V3_SERVERS; i++)
		if (servers[i].used)
			return 1;
	return 0;
}

void v3_quit(struct daemon *d)
{
	d->quitting = 1;
	for (int i = 0; i < V3_SERVERS; i++)
		if (servers[i].used && !servers[i].leaving)
			v3_delete(&servers[i], 1);
}

int v3_listeners(const struct daemon *d, int *fds)
{
	int count = 0;
	for (int i = 0; d->protocol == 3 && i < V3_SERVERS; i++) {
		if (servers[i].used)
			fds[count++] = servers[i].listener;
		for (int k = 0; servers[i].used && k < V3_SPACES; k++)
			if (servers[i].space[k].used)
				fds[count++] = servers[i].space[k].listener;
	}
	return count;
}

/* The server and the namespace of a socket; NULL: the daemon's own. */
static struct named *behind(int listener, int *space)
{
	*space = 0;
	for (int i = 0; i < V3_SERVERS; i++) {
		if (servers[i].used && servers[i].listener == listener)
			return &servers[i];
		for (*space = 0; servers[i].used && *space < V3_SPACES; ++*space)
			if (servers[i].space[*space].used && servers[i].space[*space].listener == listener)
				return &servers[i];
	}
	*space = 0;
	return NULL;
}

int v3_is_listener(const struct daemon *d, int fd)
{
	int space;
	return d->protocol == 3 && behind(fd, &space) != NULL;
}

/* In the place of a server. The end of the pair stays open for a while: the client has something to say first. */
static void refuse(int fd, int result)
{
	static int kept[16];
	static unsigned next;
	struct server_welcome w = { .result = result };
	int pair[2], *place = &kept[next++ % 16];
	if (*place > 0)
		close(*place);
	*place = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		wire_send(pair[1], &w, sizeof w);
		wire_pass(fd, pair[0]);
		close(pair[0]);
		*place = pair[1];
	}
	close(fd);
}

/* A client of the daemon's own socket goes to the server uid_<uid>, which is made for it. */
static void client(struct daemon *d, int listener, int fd, const struct ucred *from)
{
	int space;
	char name[V3_NAME];
	const char *why;
	struct named *n = behind(listener, &space);
	uid_t uid = d->multiuser ? 0 : from->uid;
	snprintf(name, sizeof name, "uid_%u", (unsigned)uid);
	if (!n && !(n = v3_server(name)) && (geteuid() == 0 || uid == geteuid()))
		n = v3_create(d, name, uid, "", &why);
	if (!n || (!d->multiuser && n->d.server.uid != from->uid)) {
		refuse(fd, MPS_NOT_PERMITTED); /* Dynamo guide: a client of another account, root included */
		return;
	}
	n->guest[n->guests++ % V3_GUESTS].pid = from->pid;
	n->guest[(n->guests - 1) % V3_GUESTS].space = space;
	server_client(&n->d, fd, from->pid, from->uid, space);
}

void v3_connection(struct daemon *d, int listener, int fd, uint32_t kind, const struct ucred *from)
{
	if (kind == WIRE_CLIENT) {
		client(d, listener, fd, from);
		return;
	}
	for (int i = 0; i < V3_SERVERS; i++)
		if (servers[i].used && servers[i].d.server.pid == from->pid) {
			server_ready(&servers[i].d, fd, from->pid);
			return;
		}
	close(fd);
}

void v3_environment(const struct named *n)
{
	int null = n->d.foreground ? -1 : open("/dev/null", O_RDWR); /* the first ones start before the daemon lets go of its own */
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	setenv("CUDA_MPS_PIPE_DIRECTORY", n->pipe, 1);
	if (*n->allowed)
		setenv("CUDA_VISIBLE_DEVICES", n->allowed, 1);
}

/* A named namespace inherits nothing from the server's settings, which are those of "default" (Dynamo guide). */
void v3_settings(struct named *n, int space)
{
	const struct space *s = &n->space[space];
	tell_percentage(&n->d, s->percentage > 0 ? s->percentage : 100);
	tell_fixed(&n->d, s->percentage > 0);
	for (uint32_t i = 0; i < WIRE_DEVICES; i++)
		tell_limit(&n->d, i, s->limit);
	tell_priority(&n->d, s->priority > 0);
}

int v3_start(struct daemon *d)
{
	char error[512] = "";
	printf("To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=%s\n", d->pipe);
	fflush(stdout);
	if (!d->config || v3_file(d, d->config, error, sizeof error) == 0)
		return 0;
	printf("Configuration error: %s\n", error);
	v3_quit(d);
	return -1;
}

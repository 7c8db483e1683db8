/* v3.h: MPS v3 (R615): named servers, namespaces, a configuration file.
 *
 * Nothing of it was measured: there is no R615 here. Evidence: MPS documentation, release 615 ("MPS v3 Interface",
 * "Namespaces", "Configuration File"), and NVIDIA's Dynamo guide "Per-GPU Compute and Memory Limits with MPS", whose
 * cases NVIDIA ran on 615.71.09. What a command says when it fails, and the words on the wire, are inferred. */
#ifndef GPUSLOT_SIM_MPS_V3_H
#define GPUSLOT_SIM_MPS_V3_H

#include "control.h"

enum { V3_SERVERS = 16, V3_SPACES = 16, V3_GUESTS = 256, V3_NAME = 65, V3_LISTENERS = V3_SERVERS * (V3_SPACES + 1) };

/* A namespace; the first one is "default". */
struct space {
	char name[V3_NAME];
	int used, listener;
	double percentage;  /* 0: not set */
	uint64_t limit;     /* bytes; 0: none */
	int priority;       /* -1: not set */
};

struct named {
	char name[V3_NAME];
	int used, listener, leaving;
	char allowed[256];  /* "": all devices */
	char pipe[200];
	struct daemon d;    /* its server, and who waits for it */
	struct space space[V3_SPACES];
	struct { pid_t pid; int space; } guest[V3_GUESTS]; /* ring: who was let in through which namespace */
	unsigned guests;
};

/* v3.c */
int v3_start(struct daemon *d);                     /* -1: the configuration file is wrong, and it was said */
int v3_listeners(const struct daemon *d, int *fds); /* how many */
int v3_is_listener(const struct daemon *d, int fd);
int v3_running(const struct daemon *d);
void v3_connection(struct daemon *d, int listener, int fd, uint32_t kind, const struct ucred *from);
void v3_ended(pid_t server, int how);
void v3_quit(struct daemon *d);
void v3_environment(const struct named *n); /* in the child that becomes the server */
void v3_settings(struct named *n, int space);
struct named *v3_server(const char *name);  /* NULL: none; v3_servers: all places */
struct named *v3_servers(void);
struct named *v3_create(struct daemon *d, const char *name, uid_t uid, const char *allowed, const char **why);
void v3_delete(struct named *n, int force);
int v3_clients(const struct named *n, int space); /* that live; space -1: any */
struct space *v3_space(struct named *n, const char *name);
struct space *v3_create_space(struct named *n, const char *name, const char **why);
void v3_delete_space(struct named *n, struct space *s);

/* v3values.c: what a person writes. 0, or -1 and why not. */
int v3_name(const char *text, const char **why);
int v3_set(struct space *s, const char *key, const char *value, const char **why); /* pinned-memory-limit=4G … */
const char *v3_get(const struct named *n, const struct space *s, const char *field); /* NULL: no such field */
int v3_file(struct daemon *d, const char *path, char *error, size_t size);

/* v3commands.c */
void v3_command(struct daemon *d, const char *line);
void v3_feature(const char *name, int audit, int on);
void v3_table(void); /* for the tests, as command_table */

#endif

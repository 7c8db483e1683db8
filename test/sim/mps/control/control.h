/* control.h: what the files of the simulated nvidia-cuda-mps-control share. */
#ifndef GPUSLOT_SIM_MPS_CONTROL_H
#define GPUSLOT_SIM_MPS_CONTROL_H

#include "../wire.h"

#include <stdarg.h>
#include <stdint.h>
#include <sys/types.h>

enum { PENDING = 256, TRIES = 6 };

/* The one server of a daemon. */
struct server {
	pid_t pid;          /* 0: none */
	uid_t uid;
	int fd;             /* -1: not ready, or (535) told to go */
	int ready;          /* it connected */
	int closing;        /* it was told to go, and will */
	int unwanted;       /* it has to go as soon as its clients are gone */
	uint32_t delay;     /* back-off in ms; 0: none */
	uint64_t retry_at;  /* ms; 0: no retry planned */
};

/* Who waits for a server of its account: a client, or a start_server (fd -1). */
struct pending { pid_t pid; uid_t uid; int fd, space; };

struct daemon {
	int version;        /* 535, 550, 555, 590, 615: the driver branch */
	int multiuser;
	int protocol;       /* 2, or 3: named servers and namespaces */
	const char *config; /* v3: the TOML file of -a */
	struct named *named; /* v3: this is the part of one named server */
	int status;         /* v3: of the last command */
	int foreground;
	const char *words;  /* R615: a command of the command line itself */
	int partitioning;   /* -S: static partitions of the multiprocessors */
	const char *pipe, *log;
	int control, privileged, events; /* sockets, and a pipe that SIGCHLD writes to */
	int ui;             /* the one command line; -1: none */
	uid_t ui_uid;
	double percentage;
	uint64_t limit[WIRE_DEVICES];
	struct { char uuid[48]; uint64_t bytes; } by_uuid[WIRE_DEVICES]; /* 580: limits of GPUs by UUID; bytes 0: none */
	uint32_t priority;
	struct server server;
	struct pending pending[PENDING];
	int waiting;
	int tries;          /* starts in a row that failed */
	int failed;         /* the last status other than 0 that a server exited with: it becomes the daemon's */
	int quitting;
	uint64_t force_at;  /* ms; 0: never */
};

/* main.c */
int driver_branch(void);

/* cli.c */
int command_line(const char *pipe, const char *words); /* words NULL: commands come from standard input */

/* daemon.c */
int daemon_run(struct daemon *d, int background);
int daemon_listen(const char *directory, const char *name); /* fd, or -1 */
void daemon_close_ui(struct daemon *d, int status);
uint64_t milliseconds(void);

/* recorder.c: the thread that writes the log out. */
int recorder_open(const char *dir, int foreground); /* 0, or -1: no log can be written */
void recorder_start(int fifo);
void recorder_server(const char *dir, const char *name, int fifo); /* v3: another one, for one server */
void recorder_join(void);

/* servers.c */
void server_start(struct daemon *d, uid_t uid);
void server_ready(struct daemon *d, int fd, pid_t pid);
void server_client(struct daemon *d, int fd, pid_t pid, uid_t uid, int space);
void server_want(struct daemon *d, uid_t uid); /* start_server */
void server_shutdown(struct daemon *d, int force);
void server_reap(struct daemon *d);
void server_ended(struct daemon *d, pid_t pid, int how);
void server_tick(struct daemon *d);            /* what is due now */
int server_timeout(const struct daemon *d);    /* ms until something is due; -1: nothing */

/* ask.c: a ready server's answers. 0, or -1: it went away. */
int ask_shutdown(struct daemon *d, uint32_t *clients);
int ask_percentage(struct daemon *d, double *value);
int tell_percentage(struct daemon *d, double value);
int ask_limit(struct daemon *d, uint32_t device, uint64_t *value);
int tell_limit(struct daemon *d, uint32_t device, uint64_t value);
int tell_priority(struct daemon *d, uint32_t value);
int tell_fixed(struct daemon *d, uint32_t value);
int ask_terminate(struct daemon *d, uint32_t pid, uint32_t *result);
int ask_status(struct daemon *d, uint32_t *active);
void ask_clients(struct daemon *d);            /* these three answer the command line themselves */
void ask_device_clients(struct daemon *d);
void ask_ps(struct daemon *d);

/* commands.c */
void command(struct daemon *d, const char *line);
void complain(struct daemon *d, const char *format, ...) __attribute__((format(printf, 2, 3))); /* and the status is 1 */
void command_table(void); /* for the tests: name, first branch, evidence */
void reply(struct daemon *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
void say(struct daemon *d, const char *format, ...) __attribute__((format(printf, 2, 3))); /* not into the log */
void control_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* partition.c: R590, documented and not measured. */
void device_query(struct daemon *d, const char *args);
int sees_no_device(void);
/* The limit that a server gets for a device. Of one by ordinal and one by UUID the smaller binds: inferred. 0: none. */
uint64_t default_limit(const struct daemon *d, int device);
void sm_partition(struct daemon *d, const char *args);
void lspart(struct daemon *d, const char *args);

/* publish.c: the daemon in the state of the simulated node, where there is one. */
void publish(const struct daemon *d);

#endif

/* server.h: what the files of the simulated nvidia-cuda-mps-server share. */
#ifndef GPUSLOT_SIM_MPS_SERVER_H
#define GPUSLOT_SIM_MPS_SERVER_H

#include "../wire.h"

#include "../welcome.h"

/* 48 clients on a device up to CUDA 13.0, 60 from 13.1 (MPS documentation). */
enum { CLIENTS_OLD = 48, CLIENTS_NEW = 60, CUDA_13_1 = 13010, GUESTS = 64 };

/* One process that came: to it, and a pidfd that says when it ends (its children may hold the socket open). pid 0: it
 * has not said yet who it is. */
struct guest {
	pid_t pid;
	uid_t uid;
	int fd, end;
	uint32_t id;
	/* The settings of the moment it was handed over: v3 has other ones for each namespace. */
	double percentage;
	uint64_t limit[WIRE_DEVICES];
	uint32_t priority, fixed;
};

struct host {
	const char *pipe;
	int control;                /* to the daemon; -1: it is gone, and before 580 the server lives on as an orphan */
	int leaving;                /* told to go once the last client has gone */
	int over;                   /* it goes now, with its clients or without */
	uint32_t devices;
	struct mps_device device[SIM_GPUS];
	double percentage;
	uint64_t limit[WIRE_DEVICES]; /* 0: none */
	uint32_t priority;
	uint32_t fixed;             /* v3: the percentage is a namespace's, whatever the client wishes */
	struct guest guest[GUESTS];
	int guests;
	uint32_t next_id;
	uint32_t state;             /* as last seen: for the log */
	int driver;                 /* the branch */
};

/* registry.c: the server and its clients in the state of the simulated node. */
int registry_open(struct host *h, const char **why); /* 0, or -1 and why not, in CUDA's words */
int registry_join(struct host *h, struct guest *g, struct mps_link *link); /* a result of client.h */
void registry_leave(struct host *h, const struct guest *g);
uint32_t registry_state(const struct host *h, int32_t *culprit);
int32_t registry_accused(const struct host *h); /* the first client that met an illegal address; 0: none */
void registry_settings(const struct host *h);
int registry_terminate(const struct host *h, pid_t client);

/* answer.c: one command of the daemon. 0, or -1: the daemon is gone. */
int answer(struct host *h);
void welcome(struct host *h, int i); /* guest i says who it is */
void lose(struct host *h, int i);
void server_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

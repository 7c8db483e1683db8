/* server.c: the simulated nvidia-cuda-mps-server. A control daemon starts it, ours or NVIDIA's own; the words of its
 * log are from the real one without a GPU (run for real) and from published logs of real ones. */
#include "server.h"

#include "../../state/state.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100 }; /* how soon a fault that a client met stands in the log */

void server_log(const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_line(SOURCE_OTHER, "%s", text);
}

/* GPUSLOT_SIM_MPS_START_MS: a driver without persistence mode takes long; the daemon waits with it. */
static void take_time(void)
{
	const char *ms = getenv("GPUSLOT_SIM_MPS_START_MS");
	long n = ms ? strtol(ms, NULL, 10) : 0;
	struct timespec t = { n / 1000, n % 1000 * 1000000 };
	while (n > 0 && nanosleep(&t, &t) != 0)
		;
}

static int receive_settings(struct host *h)
{
	uint64_t count, ignored;
	if (wire_receive(h->control, &h->percentage, sizeof h->percentage) || wire_receive(h->control, &count, sizeof count))
		return -1;
	for (uint64_t i = 0; i < count; i++)
		if (wire_receive(h->control, i < WIRE_DEVICES ? &h->limit[i] : &ignored, sizeof ignored))
			return -1;
	return wire_receive(h->control, &h->priority, sizeof h->priority);
}

/* It connects first and says only then what became of it: the daemon waits so long, and with it everybody else. */
static int start(struct host *h)
{
	const char *why = NULL;
	uint32_t word = WIRE_SERVER, zero = 0;
	log_open(h->pipe);
	server_log("Startup");
	server_log("Connecting to control daemon on socket: %s/control", h->pipe);
	if ((h->control = wire_dial(h->pipe, "control")) < 0)
		return -1;
	server_log("Initializing server process");
	take_time();
	if (registry_open(h, &why) != 0) {
		server_log("Driver initialization failed with: %s", why);
		server_log("Failed to start : %s", why);
		word = WIRE_FATAL;
		wire_send(h->control, &word, sizeof word);
		return -1;
	}
	if (wire_send(h->control, &word, sizeof word) || wire_send(h->control, &zero, sizeof zero) || receive_settings(h))
		return -1;
	registry_settings(h);
	server_log("activeThreadsPercentage set to %f", h->percentage);
	for (uint32_t i = 0; h->driver >= SIM_MEASURED && i < h->devices; i++) /* docs/hardware, T5 */
		if (h->limit[i])
			server_log("Device pinned memory limit for device %u set to 0x%" PRIx64 " bytes", i, h->limit[i]);
	server_log("MPS Server is started");
	return 0;
}

void lose(struct host *h, int i)
{
	struct guest g = h->guest[i];
	server_log("Receive command failed, assuming client exit");
	if (g.pid)
		registry_leave(h, &g);
	close(g.fd);
	if (g.end >= 0)
		close(g.end);
	h->guest[i] = h->guest[--h->guests];
	server_log("Volta MPS: Client process disconnected");
}

/* On an H200 with 580.159.04 the log named another client than the culprit after an illegal address, and nobody after
 * other faults; it called every client the cause (docs/hardware, T8). That it names the first is inferred. */
static void log_fault(const struct host *h, int32_t culprit)
{
	if (h->driver < SIM_MEASURED) {
		server_log("Volta MPS: Server is handling a fatal GPU error. Client %d encountered it", culprit);
		return;
	}
	int32_t accused = registry_accused(h);
	if (accused)
		server_log("Client {PID: %d, Context: 1} encountered a fatal GPU error.", accused);
	server_log("Server is handling a fatal GPU error.");
	for (int i = 0; i < h->guests; i++)
		server_log("All clients belonging to error trigging process %d will be torn down", (int)h->guest[i].pid); /* sic */
}

static void watch_state(struct host *h)
{
	int32_t culprit = 0;
	uint32_t now = registry_state(h, &culprit);
	if (now == SIM_SERVER_FAULT && h->state != now)
		log_fault(h, culprit);
	if (now == SIM_SERVER_ACTIVE && h->state == SIM_SERVER_FAULT && h->driver < SIM_MEASURED)
		server_log("Volta MPS: Server has recovered from a fatal GPU error"); /* 580.159.04 does not say so */
	h->state = now;
}

static void serve(struct host *h)
{
	struct pollfd p[1 + 2 * GUESTS] = { { h->control, POLLIN, 0 } };
	int guests = h->guests;
	for (int i = 0; i < guests; i++) {
		p[1 + 2 * i] = (struct pollfd){ h->guest[i].fd, POLLIN, 0 };
		p[2 + 2 * i] = (struct pollfd){ h->guest[i].end, POLLIN, 0 };
	}
	if (poll(p, (nfds_t)(1 + 2 * guests), LOOK_MS) < 0)
		return;
	for (int i = guests - 1; i >= 0; i--)
		if (p[1 + 2 * i].revents && !h->guest[i].pid)
			welcome(h, i);
		else if (p[1 + 2 * i].revents || p[2 + 2 * i].revents)
			lose(h, i);
	if (p[0].revents && answer(h) != 0) {
		close(h->control);
		h->control = -1;
		h->over = h->driver >= SIM_MEASURED; /* a server of 580.159.04 ends with its daemon (docs/hardware, T17) */
	}
	watch_state(h);
}

int main(void)
{
	static struct host h = { .control = -1, .next_id = 1 };
	const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
	h.pipe = pipe && *pipe ? pipe : "/tmp/nvidia-mps";
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_DFL); /* the forced shutdown */
	if (start(&h) != 0)
		return 1;
	while (!h.over && (!h.leaving || h.guests))
		serve(&h);
	return 0;
}

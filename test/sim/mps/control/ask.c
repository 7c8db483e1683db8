/* ask.c: questions to a ready server. A server that does not answer (stopped) hangs the daemon. */
#include "control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ask(struct daemon *d, uint32_t word, void *answer, size_t size)
{
	return wire_send(d->server.fd, &word, sizeof word) || (size && wire_receive(d->server.fd, answer, size)) ? -1 : 0;
}

/* 535 hangs up: the server then goes when its last client has gone. */
int ask_shutdown(struct daemon *d, uint32_t *clients)
{
	if (d->version >= 550)
		return ask(d, WIRE_SHUTDOWN, clients, sizeof *clients);
	ask(d, WIRE_SHUTDOWN, NULL, 0);
	close(d->server.fd);
	d->server.fd = -1;
	*clients = 0;
	return 0;
}

int ask_percentage(struct daemon *d, double *value) { return ask(d, WIRE_GET_PERCENTAGE, value, sizeof *value); }

int tell_percentage(struct daemon *d, double value)
{
	return ask(d, WIRE_SET_PERCENTAGE, NULL, 0) || wire_send(d->server.fd, &value, sizeof value);
}

int ask_limit(struct daemon *d, uint32_t device, uint64_t *value)
{
	return ask(d, WIRE_GET_LIMIT, NULL, 0) || wire_send(d->server.fd, &device, sizeof device) ||
		wire_receive(d->server.fd, value, sizeof *value);
}

int tell_limit(struct daemon *d, uint32_t device, uint64_t value)
{
	return ask(d, WIRE_SET_LIMIT, NULL, 0) || wire_send(d->server.fd, &device, sizeof device) ||
		wire_send(d->server.fd, &value, sizeof value);
}

int tell_priority(struct daemon *d, uint32_t value)
{
	return ask(d, WIRE_SET_PRIORITY, NULL, 0) || wire_send(d->server.fd, &value, sizeof value);
}

int tell_fixed(struct daemon *d, uint32_t value)
{
	return ask(d, WIRE_FIX, NULL, 0) || wire_send(d->server.fd, &value, sizeof value);
}

int ask_terminate(struct daemon *d, uint32_t pid, uint32_t *result)
{
	return ask(d, WIRE_TERMINATE, NULL, 0) || wire_send(d->server.fd, &pid, sizeof pid) ||
		wire_receive(d->server.fd, result, sizeof *result);
}

int ask_status(struct daemon *d, uint32_t *active) { return ask(d, WIRE_STATUS, active, sizeof *active); }

void ask_clients(struct daemon *d)
{
	uint32_t count, pid;
	if (ask(d, WIRE_CLIENTS, &count, sizeof count) != 0)
		return;
	for (uint32_t i = 0; i < count && wire_receive(d->server.fd, &pid, sizeof pid) == 0; i++)
		reply(d, "%u", pid);
}

/* Bus and device in decimal, the device number for an ordinal: as the real one prints them. */
void ask_device_clients(struct daemon *d)
{
	uint32_t devices, count;
	uint8_t uuid[16];
	struct wire_device v;
	struct wire_client c;
	if (ask(d, WIRE_DEVICE_CLIENTS, &devices, sizeof devices) != 0)
		return;
	for (uint32_t i = 0; i < devices; i++) {
		if (wire_receive(d->server.fd, uuid, sizeof uuid) || wire_receive(d->server.fd, &v, sizeof v) ||
			wire_receive(d->server.fd, &count, sizeof count))
			return;
		reply(d, "[%d] %02d:%02d.%d, %.64s", v.device, v.bus, v.device, v.function, v.name);
		for (uint32_t k = 0; k < count && wire_receive(d->server.fd, &c, sizeof c) == 0; k++)
			reply(d, "%u.%u", c.pid, c.context);
	}
}

static const char *command_of(uint32_t pid, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = 0; /* up to the first 0: argv[0] */
	return n ? text : "?";
}

static const char *namespace_of(uint32_t pid, char *text, size_t size)
{
	char path[64], link[64];
	snprintf(path, sizeof path, "/proc/%u/ns/pid", pid);
	ssize_t n = readlink(path, link, sizeof link - 1);
	link[n > 0 ? n : 0] = 0;
	if (sscanf(link, "pid:[%63[0-9]", text) != 1)
		snprintf(text, size, "?");
	return text;
}

static void ps_line(struct daemon *d, const struct wire_client *c)
{
	char device[64], command[256], space[64];
	const uint8_t *u = c->uuid;
	snprintf(device, sizeof device, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x", c->mig ? "MIG" : "GPU", u[0], u[1], u[2], u[3], u[4],
		u[5], u[6], u[7]);
	say(d, "%-10d%-10d%-15d%-26s%-15s%-15s", (int)c->pid, (int)c->id, (int)d->server.pid, device,
		namespace_of(c->pid, space, sizeof space), command_of(c->pid, command, sizeof command));
}

void ask_ps(struct daemon *d)
{
	uint32_t count, done = 0, active;
	struct wire_client c;
	if ((d->version >= 550 && ask_status(d, &active) != 0) || ask(d, WIRE_PS, &count, sizeof count) != 0)
		return;
	struct wire_client *all = calloc(count ? count : 1, sizeof *all);
	uint32_t n = 0;
	while (all && n < count && wire_receive(d->server.fd, &c, sizeof c) == 0)
		all[n++] = c;
	if (n)
		say(d, "%-10s%-10s%-15s%-26s%-15s%-15s", "PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND");
	for (uint32_t i = 0; i < n; i++)
		ps_line(d, &all[i]);
	free(all);
	wire_send(d->server.fd, &done, sizeof done);
}

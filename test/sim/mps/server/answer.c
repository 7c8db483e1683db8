/* answer.c: what the control daemon asks of its server. */
#include "server.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../state/state.h"

static void say32(struct host *h, uint32_t value) { wire_send(h->control, &value, sizeof value); }

/* The client says who it is, by the kernel's word: the socket pair itself is the daemon's. */
void welcome(struct host *h, int i)
{
	struct guest *g = &h->guest[i];
	struct server_welcome w = { .result = MPS_CONNECTION_FAILED };
	struct ucred from;
	char word[16];
	if (wire_receive_any(g->fd, word, sizeof word, &from, NULL) > 0) {
		g->pid = from.pid;
		g->uid = from.uid;
		g->end = (int)syscall(SYS_pidfd_open, g->pid, 0); /* -1: gone, or in a PID namespace of its own */
		if (g->end >= 0)
			w.result = registry_join(h, g, &w.link);
		wire_send(g->fd, &w, sizeof w);
	}
	if (w.result == MPS_OK) {
		server_log("MPS Server: worker created");
		server_log("Volta MPS: Creating worker thread");
		return;
	}
	g->pid = 0;
	lose(h, i);
}

static int take_client(struct host *h)
{
	int fd, on = 1;
	if (wire_take(h->control, &fd) != 0)
		return -1;
	server_log("Volta MPS Server: Received new client request");
	if (h->guests == GUESTS) {
		close(fd);
		return 0;
	}
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	struct guest *g = &h->guest[h->guests++];
	*g = (struct guest){ .fd = fd, .end = -1, .id = h->next_id++, .percentage = h->percentage, .priority = h->priority, .fixed = h->fixed };
	memcpy(g->limit, h->limit, sizeof g->limit);
	return 0;
}

/* 535 hangs up and hands over nobody any more; later ones want to know how many clients there are, and ask again. */
static int shut_down(struct host *h)
{
	const struct sim_node *n = sim_read();
	int once = n && n->branch < 550;
	if (n)
		sim_end();
	if (once || h->guests == 0)
		h->leaving = 1;
	say32(h, (uint32_t)h->guests);
	return 0;
}

static void send_clients(struct host *h)
{
	uint32_t count = 0;
	for (int i = 0; i < h->guests; i++)
		count += h->guest[i].pid != 0;
	say32(h, count);
	for (int i = 0; i < h->guests; i++)
		if (h->guest[i].pid)
			say32(h, (uint32_t)h->guest[i].pid);
}

static void describe(const struct sim_node *n, struct mps_device d, uint8_t uuid[16], struct wire_client *c)
{
	const struct sim_gpu *g = &n->gpu[d.gpu];
	const char *text = g->uuid;
	for (int i = 0; i < SIM_GIS; i++)
		for (int k = 0; d.gi != SIM_NONE && g->gi[i].used && g->gi[i].id == d.gi && k < SIM_CIS; k++)
			if (g->gi[i].ci[k].used && g->gi[i].ci[k].id == d.ci)
				text = g->gi[i].ci[k].uuid;
	wire_uuid(text, uuid);
	if (c)
		c->mig = d.gi != SIM_NONE;
}

/* Clients that have a context there; one that has none yet counts for the first device. */
static int uses(const struct sim_node *n, const struct host *h, const struct guest *g, uint32_t device)
{
	int anywhere = 0;
	for (int i = 0; i < SIM_PROCESSES; i++) {
		const struct sim_process *p = &n->process[i];
		if (!p->used || !g->pid || p->pid != g->pid)
			continue;
		anywhere = 1;
		if (p->gpu == h->device[device].gpu && p->gi == h->device[device].gi && p->ci == h->device[device].ci)
			return 1;
	}
	return g->pid && !anywhere && device == 0;
}

static uint32_t clients_on(const struct sim_node *n, const struct host *h, uint32_t device, struct wire_client *list)
{
	uint32_t count = 0;
	for (int i = 0; i < h->guests; i++) {
		struct wire_client c = { .pid = (uint32_t)h->guest[i].pid, .context = h->guest[i].id, .id = h->guest[i].id };
		if (!uses(n, h, &h->guest[i], device))
			continue;
		describe(n, h->device[device], c.uuid, &c);
		list[count++] = c;
	}
	return count;
}

static void send_ps(struct host *h)
{
	static struct wire_client list[SIM_GPUS * GUESTS];
	uint32_t count = 0, done;
	const struct sim_node *n = sim_read();
	for (uint32_t i = 0; n && i < h->devices; i++)
		count += clients_on(n, h, i, list + count);
	if (n)
		sim_end();
	say32(h, count);
	for (uint32_t i = 0; i < count; i++)
		wire_send(h->control, &list[i], sizeof list[i]);
	wire_receive(h->control, &done, sizeof done);
}

static void send_device_clients(struct host *h)
{
	static struct { uint8_t uuid[16]; struct wire_device v; uint32_t count; struct wire_client list[GUESTS]; } all[SIM_GPUS];
	const struct sim_node *n = sim_read();
	for (uint32_t i = 0; n && i < h->devices; i++) {
		const struct sim_gpu *g = &n->gpu[h->device[i].gpu];
		describe(n, h->device[i], all[i].uuid, NULL);
		all[i].v = (struct wire_device){ .bus = g->pci_bus, .device = g->pci_device };
		memcpy(all[i].v.name, g->name, strnlen(g->name, sizeof all[i].v.name - 1));
		all[i].count = clients_on(n, h, i, all[i].list);
	}
	if (n)
		sim_end();
	say32(h, n ? h->devices : 0);
	for (uint32_t i = 0; n && i < h->devices; i++) {
		wire_send(h->control, all[i].uuid, sizeof all[i].uuid);
		wire_send(h->control, &all[i].v, sizeof all[i].v);
		say32(h, all[i].count);
		for (uint32_t k = 0; k < all[i].count; k++)
			wire_send(h->control, &all[i].list[k], sizeof all[i].list[k]);
	}
}

static int set_limit(struct host *h)
{
	uint32_t device;
	uint64_t bytes;
	if (wire_receive(h->control, &device, sizeof device) || wire_receive(h->control, &bytes, sizeof bytes))
		return -1;
	if (device < WIRE_DEVICES)
		h->limit[device] = bytes;
	registry_settings(h);
	return 0;
}

static int get_limit(struct host *h)
{
	uint32_t device;
	if (wire_receive(h->control, &device, sizeof device))
		return -1;
	uint64_t bytes = device < WIRE_DEVICES ? h->limit[device] : 0;
	return wire_send(h->control, &bytes, sizeof bytes);
}

static int set_percentage(struct host *h)
{
	if (wire_receive(h->control, &h->percentage, sizeof h->percentage))
		return -1;
	registry_settings(h);
	return 0;
}

static int set_priority(struct host *h) { return wire_receive(h->control, &h->priority, sizeof h->priority); }

static int terminate(struct host *h)
{
	uint32_t pid;
	if (wire_receive(h->control, &pid, sizeof pid))
		return -1;
	say32(h, (uint32_t)registry_terminate(h, (pid_t)pid));
	return 0;
}

int answer(struct host *h)
{
	int32_t culprit;
	uint32_t word;
	if (wire_receive(h->control, &word, sizeof word) != 0)
		return -1;
	switch (word) {
	case WIRE_TAKE_CLIENT: return take_client(h);
	case WIRE_SHUTDOWN: return shut_down(h);
	case WIRE_CLIENTS: send_clients(h); return 0;
	case WIRE_DEVICE_CLIENTS: send_device_clients(h); return 0;
	case WIRE_GET_PERCENTAGE: return wire_send(h->control, &h->percentage, sizeof h->percentage);
	case WIRE_SET_PERCENTAGE: return set_percentage(h);
	case WIRE_GET_LIMIT: return get_limit(h);
	case WIRE_SET_LIMIT: return set_limit(h);
	case WIRE_TERMINATE: return terminate(h);
	case WIRE_PS: send_ps(h); return 0;
	case WIRE_SET_PRIORITY: return set_priority(h);
	case WIRE_FIX: return wire_receive(h->control, &h->fixed, sizeof h->fixed);
	case WIRE_STATUS: say32(h, registry_state(h, &culprit) != SIM_SERVER_FAULT); return 0;
	default: return 0; /* a word of a newer daemon */
	}
}

/* commands.c: the commands of the command line. Evidence: run for real, also with a
 * program in the server's place for those that need a ready server. */
#include "v3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../state/state.h"

static void send_reply(struct daemon *d, const char *text)
{
	struct { uint32_t kind; char text[2 * WIRE_TEXT]; } m = { .kind = 0 };
	size_t n = strnlen(text, sizeof m.text);
	memcpy(m.text, text, n);
	if (d->ui >= 0)
		wire_send(d->ui, &m, sizeof m.kind + n);
}

void say(struct daemon *d, const char *format, ...)
{
	char text[2 * WIRE_TEXT];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	send_reply(d, text);
}

void reply(struct daemon *d, const char *format, ...)
{
	char text[2 * WIRE_TEXT];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_line(SOURCE_CONTROL, "%s", text);
	send_reply(d, text);
}

void complain(struct daemon *d, const char *format, ...)
{
	char text[2 * WIRE_TEXT];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	d->status = 1;
	send_reply(d, text);
}

void control_log(const char *format, ...)
{
	char text[WIRE_TEXT];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_line(SOURCE_CONTROL, "%s", text);
}

/* What a stranger hears; 535 only knows the first half. 580.159.04 gave the same reason for each of three commands
 * (docs/hardware, T9): that it does so for the others is inferred. */
static void refuse(struct daemon *d, const char *why)
{
	if (d->version >= SIM_MEASURED)
		why = "Control deamon settings can only be modified by the user who started it or by the root user."; /* sic */
	if (d->version < 550)
		reply(d, "Insufficient privileges for UID %u", (unsigned)d->ui_uid);
	else
		reply(d, "Insufficient privileges for UID %u. %s", (unsigned)d->ui_uid, why);
}

static int root(const struct daemon *d) { return d->ui_uid == 0; }
static int owner(const struct daemon *d) { return root(d) || d->ui_uid == geteuid(); }

/* 535 has no such checks: any account that reaches the socket may do it. */
static int may_set_defaults(struct daemon *d)
{
	if (d->version < 550 || owner(d))
		return 1;
	refuse(d, "Control deamon settings can only be modified by the user started it or by the root user."); /* sic */
	return 0;
}

static int may_change(struct daemon *d, const char *why)
{
	if (d->version < 550 || root(d) || d->ui_uid == d->server.uid)
		return 1;
	refuse(d, why);
	return 0;
}

static int settings_of_server(struct daemon *d)
{
	return may_change(d, "Only the root user may change settings for another user's server.");
}

static int known(struct daemon *d, int pid)
{
	if (d->server.pid && d->server.pid == pid)
		return 1;
	reply(d, "Server %d not found", pid);
	return 0;
}

static int busy(struct daemon *d)
{
	if (d->server.ready && d->server.fd >= 0)
		return 0;
	control_log("Server %d is <busy>", (int)d->server.pid);
	return 1;
}

static int number(const char *args)
{
	int n = 0;
	return sscanf(args, "%d", &n) == 1 ? n : 0;
}

static void get_server_list(struct daemon *d, const char *args)
{
	(void)args;
	if (d->server.pid)
		reply(d, "%d", (int)d->server.pid);
}

static void get_server_status(struct daemon *d, const char *args)
{
	int pid;
	uint32_t active;
	if (sscanf(args, "%d", &pid) != 1)
		reply(d, "A server PID is required");
	else if (!known(d, pid))
		return;
	else if (!d->server.ready)
		reply(d, "INITIALIZING");
	else if (d->server.fd >= 0 && ask_status(d, &active) == 0)
		reply(d, active ? "ACTIVE" : "FAULT");
}

static void start_server(struct daemon *d, const char *args)
{
	char word[16];
	int uid;
	if (sscanf(args, "%15s %d", word, &uid) != 2 || strcmp(word, "-uid") != 0)
		reply(d, "A user id (UID) is required to start a new server");
	else if (!root(d) && d->ui_uid != (uid_t)uid)
		refuse(d, "Only the root user may start server for another user.");
	else if (d->quitting)
		reply(d, "The MPS control daemon is shutting down");
	else
		server_want(d, (uid_t)uid);
}

static void shutdown_server(struct daemon *d, const char *args)
{
	char flag[8] = "";
	int pid = 0;
	sscanf(args, "%d %7s", &pid, flag);
	if (!known(d, pid))
		return;
	if (!root(d) && d->ui_uid != d->server.uid)
		refuse(d, "Only the root user may shutdown another user's server.");
	else
		server_shutdown(d, strcmp(flag, "-f") == 0);
}

static void get_client_list(struct daemon *d, const char *args)
{
	if (known(d, number(args)) && d->server.ready && d->server.fd >= 0)
		ask_clients(d);
}

static void get_device_client_list(struct daemon *d, const char *args)
{
	int pid;
	if (sscanf(args, "%d", &pid) == 1 && !known(d, pid))
		return;
	if (d->server.pid && !busy(d))
		ask_device_clients(d);
}

static void ps(struct daemon *d, const char *args)
{
	char flag;
	int pid, one = sscanf(args, " -%c %d", &flag, &pid) == 2 && flag == 'p';
	if (one && d->server.pid != pid)
		reply(d, "Server %d not found", pid);
	if (d->server.pid && (!one || d->server.pid == pid) && !busy(d))
		ask_ps(d);
	else if (one)
		reply(d, "Server %d not found\n", pid);
	else
		reply(d, "Server not found");
}

static int percentage_in(const char *args, double *value)
{
	if (sscanf(args, "%lf", value) == 1 && *value > 0 && *value <= 100)
		return 1;
	control_log("Invalid percentage, expected between (0.0, 100.0]");
	return 0;
}

static void get_default_percentage(struct daemon *d, const char *args)
{
	(void)args;
	reply(d, "%.1f", d->percentage);
}

static void set_default_percentage(struct daemon *d, const char *args)
{
	double value;
	if (!may_set_defaults(d))
		return;
	if (percentage_in(args, &value))
		d->percentage = value;
	get_default_percentage(d, args);
	publish(d);
}

static void show_percentage(struct daemon *d)
{
	double value;
	if (ask_percentage(d, &value) == 0)
		reply(d, "%.1f", value);
}

static void get_percentage(struct daemon *d, const char *args)
{
	if (known(d, number(args)) && !busy(d))
		show_percentage(d);
}

static void set_percentage(struct daemon *d, const char *args)
{
	int pid = 0, used = 0;
	double value;
	sscanf(args, "%d%n", &pid, &used);
	if (!known(d, pid) || busy(d) || !settings_of_server(d))
		return;
	if (percentage_in(args + used, &value))
		tell_percentage(d, value);
	show_percentage(d);
}

/* An integer, then G or g for GiB; everything else is MiB: "1.5G" and "1T" are 1 MiB. */
static uint64_t bytes_in(const char *text)
{
	char *end;
	long long n = strtoll(text, &end, 10);
	return (uint64_t)n << (*end == 'G' || *end == 'g' ? 30 : 20);
}

static int device_in(int device)
{
	if (device >= 0 && device < WIRE_DEVICES)
		return 1;
	control_log("Invalid device ordinal!");
	return 0;
}

static void show_limit(struct daemon *d, uint64_t bytes)
{
	if (bytes >= 1ull << 30)
		reply(d, "%lldG", (long long)(bytes >> 30));
	else
		reply(d, "%lldM", (long long)(bytes >> 20));
}

/* From 580 on a limit may name its GPU by UUID. It stands beside the one by ordinal: neither reads the other back (run
 * for real with 580.159.04: docs/hardware, T2). */
static int names_uuid(const struct daemon *d, const char *args)
{
	return d->version >= SIM_MEASURED && strncmp(args + strspn(args, " "), "GPU-", 4) == 0;
}

/* The default limit that a command names. NULL: there is no such device, or no room. */
static uint64_t *named_limit(struct daemon *d, const char *args)
{
	char uuid[48] = "";
	int device = number(args); /* so "GPU-…" is device 0 before 580: the word is no number */
	int place = -1;
	if (!names_uuid(d, args))
		return device_in(device) ? &d->limit[device] : NULL;
	sscanf(args, " %47s", uuid);
	for (int i = WIRE_DEVICES - 1; i >= 0; i--)
		if (strcmp(d->by_uuid[i].uuid, uuid) == 0)
			return &d->by_uuid[i].bytes;
		else if (!d->by_uuid[i].bytes)
			place = i;
	if (place < 0)
		return NULL;
	memcpy(d->by_uuid[place].uuid, uuid, sizeof uuid);
	return &d->by_uuid[place].bytes;
}

static void get_default_limit(struct daemon *d, const char *args)
{
	const uint64_t *limit = named_limit(d, args);
	if (limit && *limit)
		show_limit(d, *limit);
	else if (limit)
		control_log("No default pinned memory limit set for the device!");
}

static void set_default_limit(struct daemon *d, const char *args)
{
	char value[64] = "";
	uint64_t *limit = may_set_defaults(d) ? named_limit(d, args) : NULL;
	if (!limit)
		return;
	/* Before 580 "GPU-…" clears device 0: no value follows a number. */
	sscanf(args, names_uuid(d, args) ? "%*s %63s" : "%*d %63s", value);
	*limit = bytes_in(value);
	publish(d);
}

static void get_limit(struct daemon *d, const char *args)
{
	int pid = 0, device = 0;
	uint64_t bytes;
	sscanf(args, "%d %d", &pid, &device);
	if (known(d, pid) && !busy(d) && device_in(device) && ask_limit(d, (uint32_t)device, &bytes) == 0 && bytes)
		show_limit(d, bytes);
}

static void set_limit(struct daemon *d, const char *args)
{
	char value[64] = "";
	int pid = 0, device = 0;
	sscanf(args, "%d %d %63s", &pid, &device, value);
	if (known(d, pid) && !busy(d) && settings_of_server(d) && device_in(device))
		tell_limit(d, (uint32_t)device, bytes_in(value));
}

/* The last line is the result: 0, or a CUDA number. */
static void terminate_client(struct daemon *d, const char *args)
{
	int pid = 0, client = 0, alive;
	char path[32];
	uint32_t result = 1;
	sscanf(args, "%d %d", &pid, &client);
	snprintf(path, sizeof path, "/proc/%d", client);
	if (!known(d, pid) || busy(d)) {
		reply(d, "Server %d not found!", pid);
	} else if (!may_change(d, "Only the root user may terminate clients on another user's server.")) {
		result = 800; /* CUDA_ERROR_NOT_PERMITTED */
	} else if ((alive = access(path, F_OK)) != 0) {
		reply(d, "Invalid process %d!", client);
	} else {
		ask_terminate(d, (uint32_t)client, &result);
	}
	reply(d, "%u", result);
}

static void get_priority(struct daemon *d, const char *args)
{
	(void)args;
	reply(d, "%u", d->priority);
}

static void set_priority(struct daemon *d, const char *args)
{
	int n = number(args);
	if (!may_set_defaults(d))
		return;
	if (n != 0 && n != 1) {
		reply(d, "Invalid priority value - must be 0 or 1!");
		return;
	}
	d->priority = (uint32_t)n;
	if (d->server.ready && d->server.fd >= 0)
		tell_priority(d, d->priority); /* the one default that a running server hears of */
}

static void quit(struct daemon *d, const char *args)
{
	char flag;
	unsigned seconds;
	if (!owner(d)) {
		reply(d, "Not enough privilege to execute quit command");
		return;
	}
	if (sscanf(args, " -%c %u", &flag, &seconds) == 2 && flag == 't') {
		control_log("quit command issued with timeout of %u", seconds);
		d->force_at = milliseconds() + seconds * 1000ull;
	}
	d->quitting = 1;
	if (d->server.pid)
		server_shutdown(d, 0);
}

#define RUN "run for real, 535 to 555: test/sim's conformance rows"
#define RUN_550 "run for real, 550 and 555: test/sim's conformance rows"
#define DOC_590 "not measured. MPS documentation, R590, for the command; "

/* Each command, the first branch that has it, and where its replies are known from. */
static const struct { const char *name; int since; void (*run)(struct daemon *, const char *); const char *from; } commands[] = {
	{ "get_server_list", 0, get_server_list, RUN },
	{ "get_server_status", 550, get_server_status, RUN_550 },
	{ "start_server", 0, start_server, RUN },
	{ "shutdown_server", 0, shutdown_server, RUN },
	{ "get_client_list", 0, get_client_list, RUN },
	{ "get_device_client_list", 0, get_device_client_list, RUN },
	{ "ps", 0, ps, RUN },
	{ "get_default_active_thread_percentage", 0, get_default_percentage, RUN },
	{ "set_default_active_thread_percentage", 0, set_default_percentage, RUN },
	{ "get_active_thread_percentage", 0, get_percentage, RUN },
	{ "set_active_thread_percentage", 0, set_percentage, RUN },
	{ "get_default_device_pinned_mem_limit", 0, get_default_limit, RUN },
	{ "set_default_device_pinned_mem_limit", 0, set_default_limit, RUN },
	{ "get_device_pinned_mem_limit", 0, get_limit, RUN },
	{ "set_device_pinned_mem_limit", 0, set_limit, RUN },
	{ "terminate_client", 0, terminate_client, RUN },
	{ "get_default_client_priority", 0, get_priority, RUN },
	{ "set_default_client_priority", 0, set_priority, RUN },
	{ "quit", 0, quit, RUN },
	{ "device_query", 590, device_query, DOC_590 "the columns are those of device list of R615" },
	{ "sm_partition", 590, sm_partition, DOC_590 "published scripts for 'Partition … created' and 'Failed to fulfill …'; the rest is inferred" },
	{ "lspart", 590, lspart, DOC_590 "a table that was published; the rest is inferred" },
};

void command_table(void)
{
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		printf("%s\t%d\t%s\n", commands[i].name, commands[i].since, commands[i].from);
	v3_table();
}

void command(struct daemon *d, const char *line)
{
	char word[WIRE_TEXT] = "";
	int used = 0;
	log_line(SOURCE_CONTROL, "Cmd:%s", line);
	if (d->protocol == 3) {
		v3_command(d, line);
		return;
	}
	sscanf(line, "%4095s%n", word, &used);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (strcmp(commands[i].name, word) == 0 && d->version >= commands[i].since) {
			commands[i].run(d, line + used);
			return;
		}
	reply(d, "Unknown command \"%s\"", word);
}

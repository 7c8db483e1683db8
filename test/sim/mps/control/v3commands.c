/* v3commands.c: module, verb, arguments. */
#include "v3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../state/state.h"

enum { WORDS = 12, COLUMNS = 8 };

/* One command line: words without a =, --key=value or key=value, and --flags. */
struct call {
	struct daemon *d;
	char line[WIRE_TEXT], *word[WORDS];
	int words;
};

static struct { const char *name; int off, audit; } features[] = { { "memacct", 0, 0 }, { "context-share", 0, 0 } };

void v3_feature(const char *name, int audit, int on)
{
	for (int i = 0; i < 2; i++)
		if (strcmp(features[i].name, name) == 0)
			*(audit ? &features[i].audit : &features[i].off) = audit ? on : !on;
}

static const char *option(const struct call *c, const char *key)
{
	size_t n = strlen(key);
	for (int i = 2; i < c->words; i++) {
		const char *w = c->word[i] + 2 * (strncmp(c->word[i], "--", 2) == 0);
		if (strncmp(w, key, n) == 0 && (w[n] == '=' || w[n] == 0))
			return w[n] ? w + n + 1 : "";
	}
	return NULL;
}

static const char *positional(const struct call *c, int which)
{
	for (int i = 2; i < c->words; i++)
		if (strncmp(c->word[i], "--", 2) != 0 && !strchr(c->word[i], '=') && which-- == 0)
			return c->word[i];
	return NULL;
}

/* --format=csv[,noheader], else a table. */
static void row(struct call *c, int heading, int count, const char *const *cell)
{
	const char *format = option(c, "format");
	int csv = format && strncmp(format, "csv", 3) == 0, used = 0;
	char text[2048];
	if (heading && format && strstr(format, "noheader"))
		return;
	for (int i = 0; i < count; i++)
		used += snprintf(text + used, sizeof text - (size_t)used, csv ? "%s%s" : "%s%-20s", csv ? (i ? "," : "") : (i ? " " : ""), cell[i]);
	say(c->d, "%s", text);
}

static struct named *server_of(struct call *c, const char *name)
{
	struct named *n = name ? v3_server(name) : NULL;
	if (!n)
		complain(c->d, "Server '%s' not found", name ? name : "");
	return n;
}

/* The owner of a server, and root. */
static int may(struct call *c, const struct named *n)
{
	if (c->d->ui_uid == 0 || c->d->ui_uid == geteuid() || c->d->ui_uid == n->d.server.uid)
		return 1;
	complain(c->d, "Insufficient privileges for UID %u", (unsigned)c->d->ui_uid);
	return 0;
}

static void server_create(struct call *c)
{
	const char *name = positional(c, 0), *owner = option(c, "uid"), *allowed = option(c, "allowed-devices"), *why;
	char automatic[V3_NAME];
	uid_t uid = owner ? (uid_t)strtoul(owner, NULL, 10) : c->d->ui_uid;
	snprintf(automatic, sizeof automatic, "uid_%u", (unsigned)uid);
	if (!name && !owner)
		complain(c->d, "Either a name or --uid is required");
	else if (c->d->multiuser && uid != 0)
		complain(c->d, "In multiuser mode only --uid=0 is allowed");
	else if (c->d->ui_uid != 0 && uid != c->d->ui_uid)
		complain(c->d, "Insufficient privileges for UID %u", (unsigned)c->d->ui_uid);
	else if (!v3_create(c->d, name ? name : automatic, uid, allowed ? allowed : "", &why))
		complain(c->d, "Server '%s' cannot be created: %s", name ? name : automatic, why);
}

static void server_delete(struct call *c)
{
	struct named *n = server_of(c, positional(c, 0));
	int force = option(c, "force") != NULL;
	if (n && may(c, n) && !force && v3_clients(n, -1))
		complain(c->d, "Server '%s' has active clients", n->name);
	else if (n && c->d->status == 0)
		v3_delete(n, force);
}

static void server_list(struct call *c)
{
	static const char *const head[] = { "NAME", "UID", "PID", "STATUS", "PIPE DIRECTORY", "ALLOWED DEVICES", "CONTEXT IDS" };
	static const char *const field[] = { "name", "uid", "pid", "status", "pipe-directory", "allowed-devices" };
	const char *one = positional(c, 0), *cell[COLUMNS];
	char text[6][512];
	row(c, 1, 7, head);
	for (struct named *n = v3_servers(); n < v3_servers() + V3_SERVERS; n++) {
		if (!n->used || (one && strcmp(one, n->name) != 0))
			continue;
		for (int i = 0; i < 6; i++) {
			snprintf(text[i], sizeof text[i], "%s", v3_get(n, NULL, field[i]));
			cell[i] = text[i];
		}
		cell[6] = "-";
		row(c, 0, 7, cell);
	}
}

static void set(struct call *c, struct named *n, struct space *s)
{
	static const char *const keys[] = { "pinned-memory-limit", "active-thread-percentage", "client-priority" };
	const char *why;
	int found = 0;
	if (!may(c, n))
		return;
	for (int i = 0; i < 3; i++) {
		const char *value = option(c, keys[i]);
		found += value != NULL;
		if (value && v3_set(s, keys[i], value, &why) != 0) {
			complain(c->d, "%s: %s", keys[i], why);
			return;
		}
	}
	if (!found)
		complain(c->d, "At least one option is required");
}

static void server_set(struct call *c)
{
	struct named *n = server_of(c, positional(c, 0));
	if (n)
		set(c, n, &n->space[0]);
}

static void get(struct call *c, const struct named *n, const struct space *s, const char *field)
{
	const char *value = field ? v3_get(n, s, field) : NULL;
	if (value)
		say(c->d, "%s", value);
	else
		complain(c->d, "There is no field '%s'", field ? field : "");
}

static void server_get(struct call *c)
{
	struct named *n = server_of(c, positional(c, 0));
	if (n)
		get(c, n, NULL, positional(c, 1));
}

static struct space *space_of(struct call *c, struct named *n, const char *name)
{
	struct space *s = n && name ? v3_space(n, name) : NULL;
	if (n && !s)
		complain(c->d, "Namespace '%s' not found", name ? name : "");
	return s;
}

static void namespace_create(struct call *c)
{
	struct named *n = server_of(c, option(c, "server"));
	const char *name = positional(c, 0), *why;
	if (n && may(c, n) && !v3_create_space(n, name ? name : "", &why))
		complain(c->d, "Namespace '%s' cannot be created: %s", name ? name : "", why);
}

static void namespace_delete(struct call *c)
{
	struct named *n = server_of(c, option(c, "server"));
	struct space *s = space_of(c, n, positional(c, 0));
	if (!s || !may(c, n))
		return;
	if (s == &n->space[0])
		complain(c->d, "Namespace 'default' cannot be deleted");
	else if (v3_clients(n, (int)(s - n->space)) && !option(c, "force"))
		complain(c->d, "Namespace '%s' has active clients", s->name);
	else
		v3_delete_space(n, s);
}

static void namespace_list(struct call *c)
{
	static const char *const head[] = { "NAME", "SERVER", "SERVER STATUS", "PINNED MEMORY LIMIT", "ACTIVE THREAD PERCENTAGE", "CLIENT PRIORITY", "PIPE DIRECTORY" };
	static const char *const field[] = { "name", "server", "server-status", "pinned-memory-limit", "active-thread-percentage", "client-priority", "pipe-directory" };
	const char *one = positional(c, 0), *only = option(c, "server"), *cell[COLUMNS];
	char text[7][512];
	row(c, 1, 7, head);
	for (struct named *n = v3_servers(); n < v3_servers() + V3_SERVERS; n++)
		for (int k = V3_SPACES - 1; n->used && (!only || strcmp(only, n->name) == 0) && k >= 0; k--) {
			if (!n->space[k].used || (one && strcmp(one, n->space[k].name) != 0))
				continue;
			for (int i = 0; i < 7; i++) {
				snprintf(text[i], sizeof text[i], "%s", v3_get(n, &n->space[k], field[i]));
				cell[i] = text[i];
			}
			row(c, 0, 7, cell);
		}
}

static void namespace_set(struct call *c)
{
	struct named *n = server_of(c, option(c, "server"));
	struct space *s = space_of(c, n, positional(c, 0));
	if (s)
		set(c, n, s);
}

static void namespace_get(struct call *c)
{
	struct named *n = server_of(c, positional(c, 1));
	struct space *s = space_of(c, n, positional(c, 0));
	if (s)
		get(c, n, s, positional(c, 2));
}

static void command_of(int pid, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;
	if (f)
		fclose(f);
	for (size_t i = 0; i + 1 < n; i++)
		text[i] = text[i] ? text[i] : ' ';
	text[n] = 0;
}

static const char *space_name(const struct named *n, pid_t pid)
{
	const char *name = "default";
	for (unsigned i = 0; i < V3_GUESTS; i++)
		if (n->guest[i].pid == pid)
			name = n->space[n->guest[i].space].name;
	return name;
}

static void client_list(struct call *c)
{
	static const char *const head[] = { "PID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND" };
	static struct sim_mps_client all[SIM_CLIENTS];
	const char *only = option(c, "server");
	const struct sim_node *node = sim_read();
	memset(all, 0, sizeof all);
	if (node) {
		memcpy(all, node->mps_client, sizeof all);
		sim_end();
	}
	row(c, 1, 5, head);
	for (struct named *n = v3_servers(); n < v3_servers() + V3_SERVERS; n++)
		for (int i = 0; n->used && (!only || strcmp(only, n->name) == 0) && i < SIM_CLIENTS; i++) {
			char pid[16], device[16], command[256];
			const char *cell[] = { pid, n->name, device, space_name(n, all[i].pid), command };
			if (!all[i].used || all[i].server != n->d.server.pid)
				continue;
			snprintf(pid, sizeof pid, "%d", all[i].pid);
			snprintf(device, sizeof device, "%u", all[i].gpu);
			command_of(all[i].pid, command, sizeof command);
			row(c, 0, 5, cell);
		}
}

static struct named *server_with(struct call *c, int pid)
{
	struct named *found = NULL;
	const struct sim_node *node = sim_read();
	for (int i = 0; node && i < SIM_CLIENTS; i++)
		for (struct named *n = v3_servers(); n < v3_servers() + V3_SERVERS; n++)
			if (n->used && node->mps_client[i].used && node->mps_client[i].pid == pid && node->mps_client[i].server == n->d.server.pid)
				found = n;
	if (node)
		sim_end();
	if (!found)
		complain(c->d, "Client %d not found", pid);
	return found;
}

static void client_get(struct call *c)
{
	const char *text = positional(c, 0), *field = positional(c, 1);
	int pid = text ? atoi(text) : 0;
	struct named *n = server_with(c, pid);
	char command[256];
	if (n && field && strcmp(field, "pid") == 0)
		say(c->d, "%d", pid);
	else if (n && field && strcmp(field, "server") == 0)
		say(c->d, "%s", n->name);
	else if (n && field && strcmp(field, "maws-ns") == 0)
		say(c->d, "%s", space_name(n, pid));
	else if (n && field && strcmp(field, "cmd") == 0) {
		command_of(pid, command, sizeof command);
		say(c->d, "%s", command);
	} else if (n)
		complain(c->d, "There is no field '%s'", field ? field : "");
}

static void client_terminate(struct call *c)
{
	const char *text = positional(c, 0);
	int pid = text ? atoi(text) : 0;
	struct named *n = server_with(c, pid);
	uint32_t result = 1;
	if (n && may(c, n) && (ask_terminate(&n->d, (uint32_t)pid, &result) != 0 || result != 0))
		complain(c->d, "Client %d cannot be terminated: %u", pid, result);
}

static void feature_switch(struct call *c)
{
	const char *name = positional(c, 0);
	int known = 0;
	for (int i = 0; name && i < 2; i++)
		known |= strcmp(features[i].name, name) == 0;
	if (!known)
		complain(c->d, "There is no feature '%s'", name ? name : "");
	else if (c->d->ui_uid != 0 && c->d->ui_uid != geteuid())
		complain(c->d, "Insufficient privileges for UID %u", (unsigned)c->d->ui_uid);
	else
		v3_feature(name, 0, strcmp(c->word[1], "enable") == 0);
}

static void feature_describe(struct call *c)
{
	static const char *const head[] = { "FEATURE", "STATE", "MODULE", "COVERS" };
	const char *one = positional(c, 0);
	row(c, 1, 4, head);
	for (int i = 0; i < 2; i++) {
		const char *cell[] = { features[i].name, features[i].off ? "disabled" : "enabled (default)", features[i].name, "-" };
		if (!one || strcmp(one, features[i].name) == 0)
			row(c, 0, 4, cell);
	}
}

static void memacct_set(struct call *c)
{
	const char *value = option(c, "audit_log");
	if (!value || (strcmp(value, "true") != 0 && strcmp(value, "false") != 0))
		complain(c->d, "audit_log=<true|false> is required");
	else
		v3_feature("memacct", 1, *value == 't');
}

static void memacct_describe(struct call *c)
{
	const char *head[] = { "KEY", "VALUE" }, *cell[] = { "audit_log", features[0].audit ? "true" : "false" };
	row(c, 1, 2, head);
	row(c, 0, 2, cell);
}

#define DOC "not measured. MPS documentation, R615, for the command and its columns; "
#define FAILURES DOC "what it says of failures is inferred"

static const struct { const char *module, *verb; void (*run)(struct call *); const char *from; } verbs[] = {
	{ "server", "create", server_create, FAILURES },
	{ "server", "delete", server_delete, FAILURES },
	{ "server", "list", server_list, DOC "the csv line is its example" },
	{ "server", "set", server_set, FAILURES },
	{ "server", "get", server_get, DOC "its example" },
	{ "namespace", "create", namespace_create, FAILURES },
	{ "namespace", "delete", namespace_delete, FAILURES },
	{ "namespace", "list", namespace_list, DOC "the table is NVIDIA's listing on 615.71.09 (Dynamo guide)" },
	{ "namespace", "set", namespace_set, FAILURES },
	{ "namespace", "get", namespace_get, DOC "its example" },
	{ "client", "list", client_list, DOC "the csv line is its example; the heading is inferred" },
	{ "client", "get", client_get, DOC "device, pci-id and linux-ns are left out" },
	{ "client", "terminate", client_terminate, FAILURES },
	{ "feature", "enable", feature_switch, FAILURES },
	{ "feature", "disable", feature_switch, FAILURES },
	{ "feature", "describe", feature_describe, DOC "its example" },
	{ "memacct", "set", memacct_set, FAILURES },
	{ "memacct", "describe", memacct_describe, DOC "the table is inferred" },
};

void v3_table(void)
{
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		printf("%s %s\t615\t%s\n", verbs[i].module, verbs[i].verb, verbs[i].from);
}

void v3_command(struct daemon *d, const char *line)
{
	struct call c = { .d = d };
	snprintf(c.line, sizeof c.line, "%s", line);
	for (char *rest, *w = strtok_r(c.line, " \n", &rest); w && c.words < WORDS; w = strtok_r(NULL, " \n", &rest))
		c.word[c.words++] = w;
	d->status = 0;
	if (c.words && strcmp(c.word[0], "quit") == 0 && (d->ui_uid == 0 || d->ui_uid == geteuid())) { /* -q */
		v3_quit(d);
		return;
	}
	for (size_t i = 0; c.words > 1 && i < sizeof verbs / sizeof *verbs; i++)
		if (strcmp(verbs[i].module, c.word[0]) == 0 && strcmp(verbs[i].verb, c.word[1]) == 0) {
			verbs[i].run(&c);
			return;
		}
	complain(d, "Unknown command \"%s%s%s\"", c.words ? c.word[0] : "", c.words > 1 ? " " : "", c.words > 1 ? c.word[1] : "");
}

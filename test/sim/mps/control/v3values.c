/* v3values.c: names, settings and the configuration file, as a person writes them. */
#include "v3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../ctl/toml.h"

int v3_name(const char *text, const char **why)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
	*why = n == 0 || text[n] || n >= V3_NAME ? "a name has 1 to 64 lower-case letters, digits and underscores" : NULL;
	return *why ? -1 : 0;
}

/* 4G, 512M, 1024K: the unit is part of it. */
static int bytes_of(const char *text, uint64_t *bytes)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : -1;
	*bytes = shift < 0 ? 0 : n << shift;
	return *text < '0' || *text > '9' || shift < 0 || end[1] ? -1 : 0;
}

int v3_set(struct space *s, const char *key, const char *value, const char **why)
{
	char *end;
	double p = strtod(value, &end);
	*why = NULL;
	if (strcmp(key, "pinned-memory-limit") == 0)
		*why = bytes_of(value, &s->limit) == 0 ? NULL : "a memory limit is a whole number with G, M or K";
	else if (strcmp(key, "active-thread-percentage") == 0 && (*end || p < 1 || p > 100))
		*why = "an active thread percentage is 1 to 100";
	else if (strcmp(key, "active-thread-percentage") == 0)
		s->percentage = p;
	else if (strcmp(key, "client-priority") == 0 && strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
		*why = "a client priority is 0 or 1";
	else if (strcmp(key, "client-priority") == 0)
		s->priority = *value == '1';
	else
		*why = "there is no such setting";
	return *why ? -1 : 0;
}

static const char *limit_text(uint64_t bytes)
{
	static char text[32];
	int shift = !(bytes & ((1 << 30) - 1)) ? 30 : !(bytes & ((1 << 20) - 1)) ? 20 : 10;
	snprintf(text, sizeof text, "%llu%c", (unsigned long long)bytes >> shift, shift == 30 ? 'G' : shift == 20 ? 'M' : 'K');
	return bytes ? text : "-";
}

/* The percentage with two digits: NVIDIA's listing of a namespace (Dynamo guide). Good until the next call. */
const char *v3_get(const struct named *n, const struct space *s, const char *field)
{
	static char text[512];
	const char *status = !n->d.server.ready ? "Initializing" : "Ready";
	text[0] = 0;
	if (strcmp(field, s ? "server" : "name") == 0)
		return n->name;
	if (strcmp(field, s ? "server-status" : "status") == 0)
		return status;
	if (s && strcmp(field, "name") == 0)
		return s->name;
	if (s && strcmp(field, "pinned-memory-limit") == 0)
		return limit_text(s->limit);
	if (s && strcmp(field, "active-thread-percentage") == 0)
		snprintf(text, sizeof text, "%.2f", s->percentage > 0 ? s->percentage : 100);
	else if (s && strcmp(field, "client-priority") == 0)
		snprintf(text, sizeof text, "%d", s->priority > 0);
	else if (strcmp(field, "pipe-directory") == 0)
		snprintf(text, sizeof text, s ? "%s/%s" : "%s", n->pipe, s ? s->name : "");
	else if (!s && strcmp(field, "uid") == 0)
		snprintf(text, sizeof text, "%u", (unsigned)n->d.server.uid);
	else if (!s && strcmp(field, "pid") == 0)
		snprintf(text, sizeof text, "%d", (int)n->d.server.pid);
	else if (!s && strcmp(field, "allowed-devices") == 0)
		snprintf(text, sizeof text, "%s", *n->allowed ? n->allowed : "-");
	return *text ? text : NULL;
}

struct file { struct daemon *d; char *error; size_t size; };

static int wrong(struct file *f, const struct json *j, const char *what)
{
	snprintf(f->error, f->size, "line %d: %s: %s", j->line, j->key ? j->key : "", what);
	return -1;
}

/* In the file a key has underscores where the command line has dashes. */
static int setting(struct file *f, struct space *s, const struct json *j)
{
	char key[64];
	const char *why;
	snprintf(key, sizeof key, "%s", j->key);
	for (char *p = key; *p; p++)
		*p = *p == '_' ? '-' : *p;
	if (j->kind != JSON_STRING)
		return wrong(f, j, "it is a string");
	return v3_set(s, key, j->text, &why) == 0 ? 0 : wrong(f, j, why);
}

static int spaces(struct file *f, struct named *n, const struct json *table)
{
	const char *why;
	for (const struct json *j = table->child; j; j = j->next) {
		struct space *s = v3_space(n, j->key);
		if (j->kind != JSON_OBJECT || (!s && !(s = v3_create_space(n, j->key, &why))))
			return wrong(f, j, j->kind == JSON_OBJECT ? why : "a namespace is a table");
		for (const struct json *k = j->child; k; k = k->next)
			if (setting(f, s, k) != 0)
				return -1;
	}
	return 0;
}

static int server(struct file *f, const struct json *table)
{
	const struct json *allowed = json_get(table, "allowed_devices"), *owner = json_get(table, "uid");
	const char *why;
	uint64_t uid = geteuid();
	if (table->kind != JSON_OBJECT || (owner && json_uint(owner, UINT32_MAX, &uid) != 0) || (allowed && allowed->kind != JSON_STRING))
		return wrong(f, table, "a server is a table; uid is a number and allowed_devices a string");
	struct named *n = v3_create(f->d, table->key, (uid_t)uid, allowed ? allowed->text : "", &why);
	if (!n)
		return wrong(f, table, why);
	for (const struct json *j = table->child; j; j = j->next) {
		int other = j == allowed || j == owner || (strcmp(j->key, "locality_domains") == 0 && j->kind == JSON_BOOL && !j->is_true);
		if (strcmp(j->key, "namespaces") == 0 && j->kind == JSON_OBJECT ? spaces(f, n, j) != 0 : !other && setting(f, &n->space[0], j) != 0)
			return -1;
	}
	return 0;
}

static int feature(struct file *f, const struct json *table)
{
	for (const struct json *j = table->child; j; j = j->next) {
		int audit = strcmp(j->key, "audit_log") == 0;
		if ((audit || strcmp(j->key, "enabled") == 0) && j->kind == JSON_BOOL)
			v3_feature(table->key, audit, j->is_true);
		else if (strcmp(j->key, "default_socket") != 0)
			return wrong(f, j, "there is no such key of a feature");
	}
	return 0;
}

static int apply(struct file *f, const struct json *root)
{
	for (const struct json *j = root->child; j; j = j->next) {
		int servers = strcmp(j->key, "servers") == 0, features = strcmp(j->key, "features") == 0;
		if (!servers && !features && strcmp(j->key, "schema_version") != 0)
			return wrong(f, j, "there is no such key");
		for (const struct json *k = servers || features ? j->child : NULL; k; k = k->next)
			if ((servers ? server(f, k) : feature(f, k)) != 0)
				return -1;
	}
	return 0;
}

int v3_file(struct daemon *d, const char *path, char *error, size_t size)
{
	static char text[1 << 16];
	struct file f = { d, error, size };
	FILE *in = fopen(path, "re");
	size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
	if (!in) {
		snprintf(error, size, "%s cannot be read", path);
		return -1;
	}
	fclose(in);
	text[n] = 0;
	struct json *root = toml_parse(text, error, size);
	int bad = !root || apply(&f, root) != 0;
	json_free(root);
	return bad ? -1 : 0;
}

/* node.c: a node from a recorded inventory (gpuslot-inventory/1) or from a file of ours, which need not say more
 * than the models: {"gpus": [{"model": "A100-40"}, {"model": "T4"}]}. A file named *.toml is TOML with the same keys. */
#include "ctl.h"
#include "json.h"
#include "toml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path;
static int gpu_number; /* for messages; -1: outside of gpus */

__attribute__((noreturn)) static void wrong(const struct json *j, const char *what)
{
	if (gpu_number >= 0)
		die(1, "%s: line %d: gpus[%d]: %s", path, j ? j->line : 0, gpu_number, what);
	die(1, "%s: line %d: %s", path, j ? j->line : 0, what);
}

static char *read_file(void)
{
	FILE *f = fopen(path, "re");
	char *b = f ? calloc(1, 1 << 20) : NULL;
	if (!b)
		die(1, "%s: %s", path, strerror(errno));
	size_t len = fread(b, 1, (1 << 20) - 1, f);
	if (ferror(f) || !feof(f))
		die(1, "%s: %s", path, ferror(f) ? strerror(errno) : "more than 1 MiB; a node file is small");
	if (strlen(b) != len)
		die(1, "%s: holds a NUL byte; a node file is text", path);
	fclose(f);
	return b;
}

static const char *string_of(const struct json *object, const char *key, size_t room)
{
	const struct json *j = json_get(object, key);
	if (!j)
		return NULL;
	if (j->kind != JSON_STRING || !*j->text || strlen(j->text) >= room)
		wrong(j, text("%s is a string of 1 to %zu characters", key, room - 1));
	return j->text;
}

/* A missing number is its default. */
static uint64_t uint_of(const struct json *object, const char *key, uint64_t most, uint64_t otherwise)
{
	const struct json *j = json_get(object, key);
	uint64_t n = otherwise;
	if (j && json_uint(j, most, &n) < 0)
		wrong(j, text("%s is a whole number up to %llu", key, (unsigned long long)most));
	return n;
}

static int bool_of(const struct json *object, const char *key)
{
	const struct json *j = json_get(object, key);
	if (j && j->kind != JSON_BOOL)
		wrong(j, text("%s is true or false", key));
	return j && j->is_true;
}

/* A key that nobody reads is a mistake that nobody sees. */
static void only(const struct json *object, const char *const *keys)
{
	for (const struct json *j = object->child; j; j = j->next) {
		int known = 0;
		for (int i = 0; keys[i]; i++)
			known |= strcmp(keys[i], j->key) == 0;
		if (!known)
			wrong(j, text("%s is no key of a node file", j->key));
	}
}

static int fits(const struct sim_model *m, const struct json *j)
{
	uint64_t mib = uint_of(j, "memory_mib", 4 << 20, 0), sm = uint_of(j, "multiprocessors", 4096, 0);
	const char *cc = string_of(j, "compute_capability", 8);
	uint64_t apart = mib > m->memory_mib ? mib - m->memory_mib : m->memory_mib - mib;
	if (mib && apart > m->memory_mib / 20) /* ECC and the driver's share make some per cent */
		return 0;
	return (!sm || sm == m->sm) && (!cc || strcmp(cc, text("%u.%u", m->cc_major, m->cc_minor)) == 0);
}

/* By key, by the product's name, else by capability, memory and multiprocessors: another card of the same chip. */
static const struct sim_model *model_of(const struct json *j)
{
	const char *key = string_of(j, "model", 32), *name = string_of(j, "name", 96);
	const struct sim_model *m = key ? sim_model(key) : NULL;
	if (key && !m)
		wrong(j, text("no model %s; simgpu models lists them", key));
	for (uint32_t i = 0; !m && name && i < sim_model_count; i++)
		if (strcmp(sim_models[i].name, name) == 0)
			m = &sim_models[i];
	if (m && !fits(m, j))
		wrong(j, text("the model %s has %llu MiB, %u multiprocessors and compute capability %u.%u; the file says otherwise",
			m->key, (unsigned long long)m->memory_mib, m->sm, m->cc_major, m->cc_minor));
	for (uint32_t i = 0; !m && json_get(j, "memory_mib") && json_get(j, "compute_capability") && i < sim_model_count; i++)
		if (fits(&sim_models[i], j))
			m = &sim_models[i];
	if (!m)
		wrong(j, text("no model for %s; add \"model\", simgpu models lists them", name ? name : "a GPU without a name"));
	return m;
}

static void set_uuid(struct sim_gpu *g, const struct json *j)
{
	unsigned a[5];
	int used = 0;
	const char *s = string_of(j, "uuid", sizeof g->uuid);
	if (!s)
		return;
	if (sscanf(s, "GPU-%8x-%4x-%4x-%4x-%4x%n", &a[0], &a[1], &a[2], &a[3], &a[4], &used) != 5 || used != 32 || strlen(s) != 40 ||
	    strspn(s + 4, "0123456789abcdef-") != 36)
		wrong(j, "uuid is GPU- and 32 lower-case hexadecimal digits in 5 groups");
	snprintf(g->uuid, sizeof g->uuid, "%s", s);
}

static void set_address(struct sim_gpu *g, const struct json *j)
{
	unsigned function;
	const char *s = string_of(j, "pci_bus_id", 20);
	if (s && sscanf(s, "%x:%x:%x.%x", &g->pci_domain, &g->pci_bus, &g->pci_device, &function) != 4)
		wrong(j, "pci_bus_id is an address such as 0000:3b:00.0");
}

static uint32_t mode_of(const struct json *j)
{
	const char *s = string_of(j, "compute_mode", 32);
	if (!s || strcmp(s, "default") == 0)
		return 0;
	if (strcmp(s, "prohibited") == 0)
		return 2;
	if (strcmp(s, "exclusive-process") != 0)
		wrong(j, "compute_mode is default, exclusive-process or prohibited");
	return 3;
}

static void make_gpu(struct sim_node *n, const struct json *j, uint32_t index)
{
	static const char *const keys[] = { "uuid", "index", "name", "pci_bus_id", "memory_mib", "reserved_mib",
		"compute_capability", "multiprocessors", "compute_mode", "mig_capable", "mig_enabled", "model", NULL };
	if (j->kind != JSON_OBJECT)
		wrong(j, "a GPU is an object");
	only(j, keys);
	const struct sim_model *m = model_of(j);
	struct sim_gpu *g = &n->gpu[index];
	sim_make_gpu(g, m, index, 1);
	set_uuid(g, j);
	set_address(g, j);
	const char *name = string_of(j, "name", sizeof g->name);
	if (name)
		snprintf(g->name, sizeof g->name, "%s", name);
	g->memory_total = uint_of(j, "memory_mib", 4 << 20, m->memory_mib) << 20;
	g->memory_reserved = uint_of(j, "reserved_mib", m->memory_mib, sim_reserved_mib(m, n->branch)) << 20;
	g->compute_mode = mode_of(j);
	if ((bool_of(j, "mig_capable") || bool_of(j, "mig_enabled")) && m->units == 0)
		wrong(j, text("a %s has no MIG", m->key));
	g->mig_current = g->mig_pending = (uint32_t)bool_of(j, "mig_enabled");
	for (uint32_t i = 0; i < index; i++)
		if (strcmp(n->gpu[i].uuid, g->uuid) == 0)
			wrong(j, text("%s stands twice", g->uuid));
}

/* NVML's indices give the order; a GPU that could not be recorded leaves no hole. */
static void make_gpus(struct sim_node *n, const struct json *list)
{
	if (list->kind != JSON_LIST)
		wrong(list, "gpus is a list");
	uint64_t done = 0;
	for (;;) {
		const struct json *next = NULL;
		uint64_t least = 0;
		int at = 0, next_at = 0;
		for (const struct json *j = list->child; j; j = j->next, at++) {
			gpu_number = at;
			uint64_t index = uint_of(j, "index", 255, (uint64_t)at);
			if (at >= SIM_GPUS)
				wrong(j, text("the simulated node has room for %d GPUs", SIM_GPUS));
			if (!(done >> at & 1) && (!next || index < least)) {
				next = j;
				next_at = at;
				least = index;
			}
		}
		if (!next)
			break;
		done |= 1ull << next_at;
		gpu_number = next_at;
		make_gpu(n, next, n->gpu_count++);
	}
	gpu_number = -1;
}

void node_from_file(const char *file, struct sim_node *n)
{
	static const char *const keys[] = { "schema", "sources", "host", "driver", "cuda", "gpus", NULL };
	char error[256];
	unsigned major, minor;
	path = file;
	gpu_number = -1;
	char *b = read_file();
	size_t length = strlen(path);
	int toml = length > 5 && strcmp(path + length - 5, ".toml") == 0;
	struct json *j = toml ? toml_parse(b, error, sizeof error) : json_parse(b, error, sizeof error);
	if (!j)
		die(1, "%s: %s", path, error);
	if (j->kind != JSON_OBJECT)
		wrong(j, "a node file is one object");
	only(j, keys);
	const char *schema = string_of(j, "schema", 64), *driver = string_of(j, "driver", 32), *cuda = string_of(j, "cuda", 16);
	if (schema && strcmp(schema, "gpuslot-inventory/1") != 0)
		wrong(j, text("schema is %s; simgpu reads gpuslot-inventory/1", schema));
	sim_make_node(n, driver ? driver : "550.163.01");
	if (n->branch == 0)
		wrong(j, "driver is a version such as 550.163.01");
	if (cuda && sscanf(cuda, "%u.%u", &major, &minor) == 2)
		n->cuda = major * 1000 + minor * 10;
	if (!json_get(j, "gpus"))
		wrong(j, toml ? "there is no [[gpus]]" : "there is no \"gpus\": a list");
	make_gpus(n, json_get(j, "gpus"));
	json_free(j);
	free(b);
}

/* json.h: a strict reader of JSON (RFC 8259) for node files: no comments, no trailing
 * commas, no key twice, whole numbers only. */
#ifndef GPUSLOT_SIM_JSON_H
#define GPUSLOT_SIM_JSON_H

#include <stddef.h>
#include <stdint.h>

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_OBJECT };

struct json {
	enum json_kind kind;
	char *key;          /* inside an object */
	char *text;         /* of a string, decoded; of a number, as written */
	int is_true;
	int line;
	struct json *child; /* first element */
	struct json *next;
};

/* json_parse returns NULL and one sentence in error for what is not JSON. Freed by json_free. */
struct json *json_parse(const char *text, char *error, size_t size);
void json_free(struct json *j);
struct json *json_get(const struct json *object, const char *key); /* NULL: not there */
/* json_uint is 0 and the number, or -1: no whole number from 0 to max. */
int json_uint(const struct json *j, uint64_t max, uint64_t *value);

#endif

/* json.c: recursive descent; the first mistake ends it, with its line. */
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 16 };

struct reader {
	const char *p;
	int line, depth;
	char *error;
	size_t size;
};

static struct json *value(struct reader *r);

static int bad(struct reader *r, const char *what)
{
	if (!*r->error)
		snprintf(r->error, r->size, "line %d: %s", r->line, what);
	return -1;
}

static void space(struct reader *r)
{
	for (; *r->p && strchr(" \t\r\n", *r->p); r->p++)
		r->line += *r->p == '\n';
}

/* After the backslash. Names of hardware are ASCII; encoding/json writes < > & as \u00XX. */
static int escape(struct reader *r, char **to)
{
	static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
	const char *f = *r->p ? strchr(from, *r->p) : NULL;
	unsigned c = 0;
	if (f) {
		*(*to)++ = is[f - from];
		r->p++;
		return 0;
	}
	if (strncmp(r->p, "u00", 3) != 0 || strspn(r->p + 3, "0123456789abcdefABCDEF") < 2 ||
	    sscanf(r->p + 3, "%2x", &c) != 1 || c < 0x20 || c > 0x7e)
		return bad(r, "a backslash stands before \"\\/bfnrt or u00XX of a printable character");
	*(*to)++ = (char)c;
	r->p += 5;
	return 0;
}

/* The result is never longer than the text: an escape is longer than what it stands for. */
static char *string(struct reader *r)
{
	if (*r->p != '"')
		return bad(r, "a string in double quotes belongs here"), NULL;
	char *s = malloc(strlen(r->p) + 1), *to = s;
	for (r->p++; s && *r->p != '"';) {
		if ((unsigned char)*r->p < 0x20)
			bad(r, *r->p ? "a control character in a string" : "a string without an end");
		else if (*r->p == '\\')
			r->p++, escape(r, &to);
		else
			*to++ = *r->p++;
		if (*r->error)
			return free(s), NULL;
	}
	r->p++;
	if (s)
		*to = 0;
	return s;
}

/* Node files hold whole numbers only. */
static void number(struct reader *r, struct json *j)
{
	size_t n = strspn(r->p, "0123456789");
	if (n == 0 || (n > 1 && *r->p == '0') || strchr(".eE", r->p[n] ? r->p[n] : ' '))
		bad(r, "a value belongs here: a string, a whole number, true, false, null, a list or an object");
	j->text = strndup(r->p, n);
	r->p += n;
}

static int members(struct reader *r, struct json *j, char end)
{
	struct json **last = &j->child;
	r->p++;
	space(r);
	for (int first = 1; *r->p != end; first = 0) {
		if (!first && *r->p++ != ',')
			return bad(r, end == ']' ? "a comma or ] belongs here" : "a comma or } belongs here");
		space(r);
		char *key = end == '}' ? string(r) : NULL;
		if (key && json_get(j, key))
			bad(r, "a key stands twice in one object");
		if (key && (space(r), *r->p++ != ':'))
			bad(r, "a colon belongs after the key");
		struct json *v = *r->error ? NULL : value(r);
		if (!v)
			return free(key), -1;
		v->key = key;
		*last = v;
		last = &v->next;
		space(r);
	}
	r->p++;
	return 0;
}

static int word(struct reader *r, const char *w)
{
	size_t n = strlen(w);
	if (strncmp(r->p, w, n) != 0)
		return 0;
	r->p += n;
	return 1;
}

static struct json *value(struct reader *r)
{
	struct json *j = calloc(1, sizeof *j);
	space(r);
	if (!j || ++r->depth > DEPTH)
		return bad(r, "nested too deep"), free(j), NULL;
	j->line = r->line;
	if (*r->p == '{' || *r->p == '[') {
		j->kind = *r->p == '{' ? JSON_OBJECT : JSON_LIST;
		members(r, j, *r->p == '{' ? '}' : ']');
	} else if (*r->p == '"') {
		j->kind = JSON_STRING;
		j->text = string(r);
	} else if (word(r, "true") || word(r, "false")) {
		j->kind = JSON_BOOL;
		j->is_true = r->p[-2] == 'u'; /* tr-u-e, fal-s-e */
	} else if (!word(r, "null")) {
		j->kind = JSON_NUMBER;
		number(r, j);
	}
	r->depth--;
	if (*r->error)
		return json_free(j), NULL;
	return j;
}

struct json *json_parse(const char *text, char *error, size_t size)
{
	struct reader r = { .p = text, .line = 1, .error = error, .size = size };
	*error = 0;
	struct json *j = value(&r);
	if (j && (space(&r), *r.p))
		bad(&r, "something follows the end of the file's value");
	if (!*error)
		return j;
	json_free(j);
	return NULL;
}

void json_free(struct json *j)
{
	while (j) {
		struct json *next = j->next;
		json_free(j->child);
		free(j->key);
		free(j->text);
		free(j);
		j = next;
	}
}

struct json *json_get(const struct json *object, const char *key)
{
	struct json *j = object && object->kind == JSON_OBJECT ? object->child : NULL;
	while (j && strcmp(j->key, key) != 0)
		j = j->next;
	return j;
}

int json_uint(const struct json *j, uint64_t max, uint64_t *value)
{
	if (!j || j->kind != JSON_NUMBER)
		return -1;
	errno = 0;
	unsigned long long n = strtoull(j->text, NULL, 10);
	if (errno || n > max)
		return -1;
	*value = n;
	return 0;
}

/* toml.c: line by line; the first mistake ends it, with its line. */
#include "toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BARE "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

struct reader { const char *p; int line, depth; char *error; size_t size; };

static struct json *value(struct reader *r);

static struct json *bad(struct reader *r, const char *what)
{
	if (!*r->error)
		snprintf(r->error, r->size, "line %d: %s", r->line, what);
	return NULL;
}

static void blank(struct reader *r) { r->p += strspn(r->p, " \t"); }

/* Spaces, comments and, where they mean nothing, ends of lines. */
static void space(struct reader *r)
{
	for (;; r->p++, r->line++) {
		r->p += strspn(r->p, " \t\r");
		if (*r->p == '#')
			r->p += strcspn(r->p, "\n");
		if (*r->p != '\n')
			return;
	}
}

static struct json *node(struct reader *r, enum json_kind kind)
{
	struct json *j = calloc(1, sizeof *j);
	if (!j)
		abort(); /* a file of 1 MiB at most */
	*j = (struct json){ .kind = kind, .line = r->line };
	return j;
}

static void append(struct json *to, struct json *child)
{
	struct json **at = &to->child;
	while (*at)
		at = &(*at)->next;
	*at = child;
}

static char *bare(struct reader *r)
{
	size_t n = strspn(r->p, BARE);
	if (n == 0)
		return bad(r, "a key of letters, digits, - and _ belongs here"), NULL;
	r->p += n;
	return strndup(r->p - n, n);
}

/* key = value. A dotted key is refused by the =. */
static void pair(struct reader *r, struct json *table)
{
	char *key = bare(r);
	struct json *v = NULL;
	if (key && json_get(table, key))
		bad(r, "a key stands twice in one table");
	blank(r);
	if (!*r->error && *r->p++ != '=')
		bad(r, "= belongs after the key");
	blank(r);
	if (*r->error || !(v = value(r)))
		return free(key);
	v->key = key;
	append(table, v);
}

static struct json *string(struct reader *r)
{
	char quote = *r->p++;
	struct json *j = node(r, JSON_STRING);
	char *to = j->text = calloc(1, strlen(r->p) + 1);
	if (r->p[0] == quote && r->p[1] == quote)
		bad(r, "a string over several lines is not understood");
	while (to && !*r->error && *r->p != quote) {
		if (*r->p == '\\' && quote == '"' && (*++r->p != '"' && *r->p != '\\'))
			bad(r, "of the escapes only \\\" and \\\\ are understood");
		else if (*r->p < ' ' && *r->p != '\t')
			bad(r, "a string ends on its line");
		else
			*to++ = *r->p++;
	}
	r->p++;
	return *r->error ? json_free(j), NULL : j;
}

/* [ … ] over any number of lines, or { … } on one. */
static struct json *members(struct reader *r, int table)
{
	char end = table ? '}' : ']';
	void (*gap)(struct reader *) = table ? blank : space;
	struct json *j = node(r, table ? JSON_OBJECT : JSON_LIST), *v;
	j->text = strdup("");
	for (r->p++, gap(r); !*r->error && *r->p != end; gap(r)) {
		if (table)
			pair(r, j);
		else if ((v = value(r)))
			append(j, v);
		gap(r);
		if (!*r->error && *r->p != end && *r->p++ != ',')
			bad(r, table ? "a comma or } belongs here" : "a comma or ] belongs here");
		else if (table && !*r->error && r->p[-1] == ',' && (gap(r), *r->p == end))
			bad(r, "no comma belongs before }");
	}
	r->p++;
	return *r->error ? json_free(j), NULL : j;
}

/* A whole number, true or false: up to what may follow a value. */
static struct json *word(struct reader *r)
{
	size_t n = strcspn(r->p, " \t\r\n#,]}"), digits = strspn(r->p, "0123456789");
	int yes = n == 4 && strncmp(r->p, "true", n) == 0, no = n == 5 && strncmp(r->p, "false", n) == 0;
	if (!yes && !no && (n == 0 || digits != n || (n > 1 && *r->p == '0')))
		return bad(r, "a value belongs here: a string, a whole number, true, false, a list or an inline table");
	struct json *j = node(r, yes || no ? JSON_BOOL : JSON_NUMBER);
	j->is_true = yes;
	r->p += n;
	j->text = strndup(r->p - n, n);
	return j;
}

static struct json *value(struct reader *r)
{
	if (++r->depth > 16)
		return bad(r, "nested too deep");
	struct json *j = *r->p == '"' || *r->p == '\'' ? string(r) : *r->p == '[' || *r->p == '{' ? members(r, *r->p == '{') : word(r);
	r->depth--;
	return j;
}

/* [a.b] and [[a.b]]: the tables on the way are made; of an array of tables the last one is meant. is_true marks a table
 * that has had its heading, text what was written as a value: nothing is added to it. */
static struct json *heading(struct reader *r, struct json *root)
{
	int array = r->p[1] == '[';
	struct json *at = root, *next;
	for (r->p += 1 + array;; r->p++) {
		char *key = (blank(r), bare(r));
		int last = (blank(r), *r->p == ']');
		if (!key || (!last && *r->p != '.'))
			return free(key), bad(r, "a . or ] belongs here");
		next = json_get(at, key);
		if (next)
			free(key);
		else {
			next = node(r, last && array ? JSON_LIST : JSON_OBJECT);
			next->key = key;
			append(at, next);
		}
		if (next->text || (last && (next->kind == JSON_LIST) != array))
			return bad(r, "this table or key stands there already");
		if (last && array)
			append(next, node(r, JSON_OBJECT));
		if (next->kind == JSON_LIST)
			for (next = next->child; next->next; next = next->next)
				;
		if (last && next->is_true)
			return bad(r, "this table or key stands there already");
		at = next;
		if (last)
			break;
	}
	at->is_true = 1;
	if (array && *++r->p != ']')
		return bad(r, "]] belongs here");
	r->p++;
	return at;
}

struct json *toml_parse(const char *text, char *error, size_t size)
{
	struct reader r = { .p = text, .line = 1, .error = error, .size = size };
	*error = 0;
	for (const char *p = text; *p; r.line += *p++ == '\n')
		if ((*p < 0x20 && !strchr("\t\n", *p) && strncmp(p, "\r\n", 2) != 0) || *p == 0x7f) /* char is signed: above ASCII, too */
			return bad(&r, "only printable ASCII is understood");
	r.line = 1;
	struct json *root = node(&r, JSON_OBJECT), *table = root;
	for (space(&r); !*error && *r.p; space(&r)) {
		if (*r.p == '[')
			table = heading(&r, root);
		else
			pair(&r, table);
		int line = r.line;
		if (space(&r), *r.p && r.line == line)
			bad(&r, "the line ends here; something follows");
	}
	return *error ? json_free(root), NULL : root;
}

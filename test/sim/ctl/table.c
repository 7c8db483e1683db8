/* table.c: aligned tables. */
#include "ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *text(const char *format, ...)
{
	static char ring[64][192];
	static unsigned next;
	char *to = ring[next++ % 64];
	va_list args;
	va_start(args, format);
	vsnprintf(to, sizeof ring[0], format, args);
	va_end(args);
	return to;
}

void table_row(struct table *t, int columns, ...)
{
	va_list args;
	va_start(args, columns);
	t->columns = columns;
	for (int i = 0; i < columns && t->cells < (int)(sizeof t->cell / sizeof *t->cell); i++) {
		const char *s = va_arg(args, const char *);
		t->cell[t->cells++] = strdup(*s ? s : "-");
	}
	va_end(args);
}

/* Characters, not bytes of UTF-8. */
static size_t length(const char *s)
{
	size_t n = 0;
	for (; *s; s++)
		n += (*s & 0xC0) != 0x80;
	return n;
}

static int width(const struct table *t, int column)
{
	size_t most = 0;
	for (int i = column; i < t->cells; i += t->columns)
		if (length(t->cell[i]) > most)
			most = length(t->cell[i]);
	return (int)most;
}

void table_print(struct table *t, const char *title)
{
	if (t->cells > t->columns && *title)
		printf("\n%s\n", title);
	for (int i = 0; t->cells > t->columns && i < t->cells; i++) {
		int column = i % t->columns, last = column == t->columns - 1;
		int pad = last ? 0 : width(t, column) - (int)length(t->cell[i]) + 2;
		printf("%s%*s%s", t->cell[i], pad, "", last ? "\n" : "");
	}
	for (int i = 0; i < t->cells; i++)
		free(t->cell[i]);
	*t = (struct table){ 0 };
}

/* recorder.c: the thread that drains the FIFO `log` and writes the lines out: with -f to standard output, else to
 * control.log and server.log. Anybody may write into the FIFO; one record that is none ends the thread for good, and
 * the next 64 KiB hang the daemon in write (measured). */
#include "control.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A FIFO, and the files of the daemon and of its servers. With v3 each server has a FIFO and a file of its own. */
struct stream { int fifo; FILE *files[2]; };

static struct stream own;
static pthread_t thread;
static int running;

static FILE *log_file(const char *dir, const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return fopen(path, "ae");
}

int recorder_open(const char *dir, int foreground)
{
	if (foreground) {
		own.files[0] = own.files[1] = stdout;
		return 0;
	}
	umask(022);
	own.files[0] = log_file(dir, "control.log");
	own.files[1] = log_file(dir, "server.log");
	return own.files[0] && own.files[1] ? 0 : -1;
}

static int whole(int fifo, void *data, size_t size)
{
	ssize_t n;
	do
		n = read(fifo, data, size);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)size;
}

static void line(const struct stream *s, const struct log_record *r, enum wire_source source, const char *text)
{
	static const char *const names[] = { "Control", "Server", "Client", "Other", "Legacy Server" };
	FILE *f = s->files[source == SOURCE_CONTROL ? 0 : 1];
	size_t size = strlen(text);
	fprintf(f, "[%u-%02u-%02u %02u:%02u:%02u.%03u %s %5u] %s%s", r->year, r->month, r->day, r->hour, r->minute, r->second,
		r->millisecond, names[source], r->pid, text, size && text[size - 1] == '\n' ? "" : "\n");
	fflush(f);
}

static void *record(void *arg)
{
	const struct stream *s = arg;
	struct log_record r;
	char text[WIRE_TEXT + 1];
	while (whole(s->fifo, &r, sizeof r) && r.magic != (uint32_t)LOG_END) {
		uint32_t source = r.magic - (uint32_t)LOG_MAGIC;
		if (source > SOURCE_LEGACY || r.size > WIRE_TEXT || (r.size && !whole(s->fifo, text, r.size)))
			return NULL;
		text[r.size] = 0;
		line(s, &r, (enum wire_source)source, text);
	}
	return NULL;
}

void recorder_start(int fd)
{
	own.fifo = fd;
	running = pthread_create(&thread, NULL, record, &own) == 0;
}

/* The thread stays with the daemon: a named server may come back. */
void recorder_server(const char *dir, const char *name, int fd)
{
	char path[4096];
	pthread_t t;
	struct stream *s = calloc(1, sizeof *s);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	mkdir(path, 0755);
	FILE *f = own.files[0] == stdout ? stdout : log_file(path, "server.log");
	if (!s || !f)
		return;
	*s = (struct stream){ fd, { f, f } };
	if (pthread_create(&t, NULL, record, s) == 0)
		pthread_detach(t);
}

void recorder_join(void)
{
	if (running)
		pthread_join(thread, NULL);
}

/* cli.c: the command line: commands from standard input, replies to standard output.
 *
 * One thread sends and one receives, as in the real one, and who is first decides what a refused caller sees: rc 1
 * with "Cannot send command", or rc 1 or rc 0 with nothing (measured). */
#include "control.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPLY = 0, CLOSED = 1 };

/* A daemon that closed leaves rc 1; one that closed with something of ours unread leaves a reset, and rc 0. */
static void *receive(void *arg)
{
	int fd = *(int *)arg;
	for (;;) {
		struct { uint32_t kind; char text[WIRE_TEXT + 1]; } m;
		ssize_t n = wire_receive_any(fd, &m, sizeof m.kind + WIRE_TEXT, NULL, NULL);
		if (n < (ssize_t)sizeof m.kind)
			exit(n >= 0);
		size_t size = (size_t)n - sizeof m.kind;
		if (m.kind == CLOSED) {
			uint32_t status = 0;
			memcpy(&status, m.text, size < sizeof status ? size : sizeof status);
			exit((int)status);
		}
		m.text[size] = 0;
		puts(m.text);
	}
	return NULL;
}

static void cannot_send(void)
{
	fputs("Cannot send command to MPS control daemon process\n", stderr); /* unbuffered */
	_exit(1);
}

/* Only root may connect to control_privileged; others are sent on to control. */
static int dial(const char *pipe)
{
	int fd = wire_connect(pipe, "control_privileged", WIRE_UI);
	if (fd < 0 && errno != EPROTO)
		fd = wire_connect(pipe, "control", WIRE_UI);
	return fd;
}

int command_line(const char *pipe, const char *words)
{
	char line[WIRE_TEXT];
	uint64_t size;
	pthread_t receiver;
	int fd = dial(pipe);
	if (fd < 0) {
		fputs(errno == EPROTO ? "Cannot authenticate or connect to MPS control daemon process\n" :
			"Cannot find MPS control daemon process\n", stderr);
		return 1;
	}
	if (pthread_create(&receiver, NULL, receive, &fd) != 0)
		return 1;
	for (int first = 1; words ? first && snprintf(line, sizeof line, "%s\n", words) > 0 : fgets(line, sizeof line, stdin) != NULL; first = 0) {
		size = strlen(line) + 1;
		if (wire_send(fd, &size, sizeof size) != 0 || wire_send(fd, line, size) != 0)
			cannot_send();
	}
	size = 0;
	wire_send(fd, &size, sizeof size); /* a daemon that has quit is no longer there for it */
	pthread_join(receiver, NULL);
	return 0;
}

/* How gpuslot-start talks to the agent: one line of JSON as request, one as reply. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "start.h"

const char *socket_path = "/run/gpuslot/agent.sock";

int beside(char *out, size_t size, const char *name)
{
	const char *slash = strrchr(socket_path, '/');
	if (slash == NULL)
		return -1;
	int n = snprintf(out, size, "%.*s/%s", (int)(slash - socket_path), socket_path, name);
	return n > 0 && (size_t)n < size ? 0 : -1;
}

/* ask_once sends one line to the agent and reads its line, without the line's end. It returns 1 where
   the connection ended without a reply: the agent has restarted, and systemd keeps its socket. */
static int ask_once(const char *request, size_t length, long patience, char *reply, size_t size)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct timeval wait = { .tv_sec = patience / 1000, .tv_usec = patience % 1000 * 1000 };
	if (strlen(socket_path) >= sizeof at.sun_path)
		return -1;
	strcpy(at.sun_path, socket_path);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -1;
	int done = -1;
	if (setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0 ||
	    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) != 0 ||
	    connect(s, (struct sockaddr *)&at, sizeof at) != 0)
		goto out;
	if (send(s, request, length, MSG_NOSIGNAL) != (ssize_t)length) {
		done = errno == EPIPE || errno == ECONNRESET ? 1 : -1;
		goto out;
	}
	for (size_t have = 0; have < size;) {
		ssize_t n = recv(s, reply + have, size - have, 0);
		if (n <= 0) {
			done = n == 0 || errno == ECONNRESET ? 1 : -1;
			if (n == 0)
				errno = ECONNRESET;
			goto out;
		}
		char *end = memchr(reply + have, '\n', (size_t)n);
		have += (size_t)n;
		if (end != NULL) {
			*end = 0;
			done = 0;
			goto out;
		}
	}
	errno = EMSGSIZE;
out:;
	int why = errno;
	close(s);
	errno = why;
	return done;
}

int ask(const char *request, long patience, char *reply, size_t size)
{
	int done = 1;
	for (int tries = 0; done > 0 && tries < 3; tries++)
		done = ask_once(request, strlen(request), patience, reply, size);
	return done;
}

int starts_with(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

/* unescape makes a JSON string's text of what follows its first quote, in place. */
static void unescape(char *text)
{
	static const char letters[] = "nrtbf", meant[] = "\n\r\t\b\f";
	char *out = text;
	for (char *in = text; *in != 0 && *in != '"'; in++) {
		if (*in != '\\') {
			*out++ = *in;
			continue;
		}
		if (*++in == 0)
			break;
		const char *letter = strchr(letters, *in);
		if (*in != 'u') {
			*out++ = letter != NULL ? meant[letter - letters] : *in;
			continue;
		}
		char digits[5] = { 0 };
		strncpy(digits, in + 1, 4);
		unsigned long c = strtoul(digits, NULL, 16);
		in += strlen(digits);
		if (c >= 0x800)
			*out++ = (char)(0xe0 | c >> 12);
		if (c >= 0x80)
			*out++ = (char)(c >= 0x800 ? 0x80 | (c >> 6 & 0x3f) : 0xc0 | c >> 6);
		*out++ = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
	}
	*out = 0;
}

char *value(char *reply, const char *name)
{
	char quoted[32];
	snprintf(quoted, sizeof quoted, "\"%s\":\"", name);
	char *at = starts_with(reply, "{\"v\":1,") ? strstr(reply, quoted) : NULL;
	if (at == NULL)
		return NULL;
	at += strlen(quoted);
	unescape(at);
	return at;
}

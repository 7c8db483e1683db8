/* wire.c: messages on `control`, and records for the log. */
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char hello[] = "OUTBHELL", credentials[] = "OUTBCRED", descriptor[] = "OUTBCUFD"; /* each with its 0 */

int wire_send(int fd, const void *data, size_t size)
{
	ssize_t n;
	do
		n = send(fd, data, size, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)size ? 0 : -1;
}

ssize_t wire_receive_any(int fd, void *data, size_t size, struct ucred *from, int *passed)
{
	union { char b[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
	struct iovec part = { data, size };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = sizeof control.b };
	ssize_t n;
	do
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (passed)
		*passed = -1;
	if (from)
		*from = (struct ucred){ 0, -1, -1 };
	for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && from)
			memcpy(from, CMSG_DATA(c), sizeof *from);
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			int got;
			memcpy(&got, CMSG_DATA(c), sizeof got);
			if (passed)
				*passed = got;
			else
				close(got);
		}
	}
	return n;
}

int wire_receive(int fd, void *data, size_t size)
{
	return wire_receive_any(fd, data, size, NULL, NULL) == (ssize_t)size ? 0 : -1;
}

static int send_with(int fd, const char *word, int type, const void *data, size_t size)
{
	union { char b[CMSG_SPACE(sizeof(struct ucred))]; struct cmsghdr align; } control = { 0 };
	struct iovec part = { (void *)word, sizeof hello };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = CMSG_SPACE(size) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = type };
	memcpy(CMSG_DATA(c), data, size);
	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)sizeof hello ? 0 : -1;
}

int wire_pass(int fd, int passed) { return send_with(fd, descriptor, SCM_RIGHTS, &passed, sizeof passed); }

int wire_take(int fd, int *passed)
{
	char word[sizeof descriptor];
	ssize_t n = wire_receive_any(fd, word, sizeof word, NULL, passed);
	return n == (ssize_t)sizeof word && memcmp(word, descriptor, sizeof word) == 0 && *passed >= 0 ? 0 : -1;
}

int wire_credentials(int fd)
{
	struct ucred own = { getpid(), geteuid(), getegid() };
	return send_with(fd, credentials, SCM_CREDENTIALS, &own, sizeof own);
}

int wire_dial(const char *pipe, const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char word[sizeof hello];
	int on = 1, fd;
	if (snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", pipe, name) >= (int)sizeof a.sun_path)
		return errno = ENAMETOOLONG, -1;
	if ((fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
		int why = errno;
		close(fd);
		return errno = why, -1;
	}
	if (wire_receive(fd, word, sizeof word) == 0 && memcmp(word, hello, sizeof word) == 0 && wire_credentials(fd) == 0)
		return fd;
	close(fd);
	return errno = EPROTO, -1;
}

int wire_connect(const char *pipe, const char *name, uint32_t kind)
{
	int fd = wire_dial(pipe, name);
	if (fd < 0 || wire_send(fd, &kind, sizeof kind) == 0)
		return fd;
	close(fd);
	return errno = EPROTO, -1;
}

static int log_fd = -1;

int log_open(const char *pipe)
{
	char path[256];
	snprintf(path, sizeof path, "%s/log", pipe);
	log_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* ENXIO: nobody reads */
	if (log_fd >= 0)
		fcntl(log_fd, F_SETFL, 0); /* from here on a full FIFO hangs the writer */
	return log_fd >= 0 ? 0 : -1;
}

static void put(uint32_t magic, const char *text, size_t size)
{
	struct timespec now;
	struct tm t;
	char b[sizeof(struct log_record) + WIRE_TEXT];
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &t);
	struct log_record r = { magic, (uint32_t)getpid(), (uint32_t)t.tm_year + 1900, (uint32_t)t.tm_mon + 1, (uint32_t)t.tm_mday,
		(uint32_t)t.tm_wday, (uint32_t)t.tm_hour, (uint32_t)t.tm_min, (uint32_t)t.tm_sec, (uint32_t)(now.tv_nsec / 1000000), size };
	memcpy(b, &r, sizeof r);
	memcpy(b + sizeof r, text, size);
	/* one write: lines of several processes must not mix */
	if (log_fd >= 0 && write(log_fd, b, sizeof r + size) < 0)
		return;
}

void log_line(enum wire_source source, const char *format, ...)
{
	char text[WIRE_TEXT];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (n > 0)
		put((uint32_t)LOG_MAGIC + source, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void log_end(void) { put((uint32_t)LOG_END, "", 0); }

void wire_uuid(const char *text, uint8_t bytes[16])
{
	int digits = 0;
	memset(bytes, 0, 16);
	for (const char *p = strchr(text, '-'); p && *p && digits < 32; p++) {
		char c[2] = { *p, 0 };
		if (*p == '-')
			continue;
		bytes[digits / 2] |= (uint8_t)(strtoul(c, NULL, 16) << (digits % 2 ? 0 : 4));
		digits++;
	}
}
